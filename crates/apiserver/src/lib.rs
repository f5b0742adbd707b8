//! An embedded Kubernetes API server for laptops and tests.
