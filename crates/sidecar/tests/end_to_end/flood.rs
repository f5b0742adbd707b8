//! Malicious clients of the status port.

use testkit::eventually;
use testkit::processes::Usage;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::running::{PATIENCE, Sidecar};

/// The number of connections, more than the sidecar keeps open.
const CLIENTS: usize = 1000;
/// Number of file descriptors that the sidecar may have open: its limit of connections, and a
/// margin for its own files and for connections that are being closed.
const DESCRIPTORS: u32 = 256 + 64;

fn descriptors(sidecar: &Sidecar) -> u32 {
    Usage::of(sidecar.process.id()).unwrap().descriptors
}

#[tokio::test]
async fn slow_clients_leave_room_for_kubelet() {
    let mut sidecar = Sidecar::start::<&str>(&[]).await;
    let mut clients = Vec::with_capacity(CLIENTS);
    for at in 0..CLIENTS {
        let mut client = TcpStream::connect(sidecar.address).await.unwrap();
        if at % 2 == 0 {
            // The request head never ends. The sidecar may have closed the connection already, so
            // errors are ignored.
            let _ = client.write_all(b"GET /metrics HTTP/1.1\r\nHost: ").await;
        }
        clients.push(client);
        if at % 100 == 0 {
            let (status, _) = sidecar.get("/healthz").await;
            assert_eq!(status, 200, "after {at} clients");
        }
    }
    let (status, metrics) = sidecar.get("/metrics").await;
    assert!(status == 200 && metrics.contains("process_open_fds"));
    eventually(PATIENCE, || async { descriptors(&sidecar) <= DESCRIPTORS }).await;
    drop(clients);
    eventually(PATIENCE, || async { descriptors(&sidecar) < 64 }).await;
    assert_eq!(sidecar.get("/healthz").await.0, 200);
    assert_eq!(sidecar.process.terminate(PATIENCE).await.code(), Some(0));
}
