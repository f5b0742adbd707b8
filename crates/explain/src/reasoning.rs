//! Conclusions from the facts (module `facts`): reasons for a missing answer, remarks on an
//! unexpected answer, similar names, the answer in one line, and warnings.

pub(crate) mod reasons;
pub(crate) mod similar_names;
pub(crate) mod summary;
pub(crate) mod warnings;
