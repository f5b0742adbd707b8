//! Tests with fixed tables, and with the tables of the running kernel.

use super::*;

use std::net::UdpSocket as PlainSocket;

/// A table with the two sockets of the server, a socket at another address, a socket with another
/// port, and the socket of a connected client.
#[cfg(target_endian = "little")]
const UDP: &str = "\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops            
   41: 00000000:2743 00000000:0000 07 00000000:00000300 00:00000000 00000000  1001        0 1342664 2 00000000189d0421 17       
   41: 00000000:2743 00000000:0000 07 00000000:00034A00 00:00000000 00000000  1001        0 1342665 2 0000000012345678 4294967295
   41: 0100007F:2743 00000000:0000 07 00000000:00000001 00:00000000 00000000  1001        0 1342666 2 0000000012345679 1
  312: 00000000:0035 00000000:0000 07 00000000:00000002 00:00000000 00000000     0        0 500103 2 000000001d9d7865 2        
 1604: 0100007F:9C5E 0100007F:2743 01 00000000:00000000 00:00000000 00000000     0        0 500104 2 000000001d9d7866 3        
";

#[cfg(target_endian = "little")]
const UDP6: &str = "\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
   41: 00000000000000000000000000000000:2743 00000000000000000000000000000000:0000 07 00000000:00000200 00:00000000 00000000  1001        0 11 2 0000000000000000 5
   41: B80D0120000000000000000001000000:2743 00000000000000000000000000000000:0000 07 00000000:00000100 00:00000000 00000000  1001        0 12 2 0000000000000000 6
";

fn sums_of(table: &str, address: &str) -> QueueSums {
    sum_queues(table.as_bytes(), address.parse().unwrap()).unwrap()
}

#[test]
#[cfg(target_endian = "little")]
fn sockets_of_one_address_are_added_up() {
    for (address, waiting, drops) in [
        ("0.0.0.0:10051", 0x300 + 0x34a00, 17 + 4_294_967_295),
        ("127.0.0.1:10051", 1, 1),
        ("0.0.0.0:53", 2, 2),
        ("0.0.0.0:54", 0, 0),
    ] {
        let expected = QueueSums { waiting, drops };
        assert_eq!(sums_of(UDP, address), expected, "{address}");
    }
}

#[test]
#[cfg(target_endian = "little")]
fn ipv6_sockets_are_found_by_address() {
    for (address, waiting, drops) in [("[::]:10051", 0x200, 5), ("[2001:db8::1]:10051", 0x100, 6)] {
        let expected = QueueSums { waiting, drops };
        assert_eq!(sums_of(UDP6, address), expected, "{address}");
    }
}

#[test]
fn malformed_table_lines_are_ignored() {
    let lines = [
        "",
        "41:",
        "41: 00000000:2743",
        "41: 00000000:2743 00000000:0000 07 00000000:00000300 00:00000000 00000000 1001 0 1342664 2 0",
        "41: 00000000:2743 00000000:0000 07 00000000:00000300 00:00000000 00000000 1001 0 1342664 2 0 -1",
        "41: 00000000:2743 00000000:0000 07 00000000-00000300 00:00000000 00000000 1001 0 1342664 2 0 1",
        "41: 0000000:2743 00000000:0000 07 00000000:00000300 00:00000000 00000000 1001 0 1342664 2 0 1",
        "41: 0000000é:2743 00000000:0000 07 00000000:00000300 00:00000000 00000000 1001 0 1342664 2 0 1",
        "41: 00000000:12743 00000000:0000 07 00000000:00000300 00:00000000 00000000 1001 0 1342664 2 0 1",
        "41: ZZ000000:2743 00000000:0000 07 00000000:00000300 00:00000000 00000000 1001 0 1342664 2 0 1",
    ];
    for line in lines {
        assert_eq!(parse_line(line), None, "{line}");
    }
}

fn value(drops: &UdpQueues, name: &str) -> f64 {
    let families = drops.collect();
    let family = families
        .iter()
        .find(|family| family.name() == name)
        .unwrap();
    let metric = &family.get_metric()[0];
    metric.get_counter().get_value() + metric.get_gauge().get_value()
}

/// Fills the buffer of a socket that is not read, and checks the reported octets and drops.
fn overflow(address: &str) {
    let socket = UdpSocket::bind(address.parse().unwrap(), Arc::default()).unwrap();
    let drops = UdpQueues::new(socket.local_addr()).unwrap();
    let values = (value(&drops, DROPS.name), value(&drops, QUEUED.name));
    assert_eq!(values, (0.0, 0.0));
    let granted = value(&drops, BUFFER.name);
    assert!(granted > 0.0);

    let client = PlainSocket::bind((socket.local_addr().ip(), 0)).unwrap();
    let datagram = [0; 1400];
    // A datagram takes at least its own size in the buffer.
    let enough = socket.receive_buffer() / datagram.len() + 1;
    for _ in 0..enough {
        client.send_to(&datagram, socket.local_addr()).unwrap();
    }
    assert!(
        value(&drops, DROPS.name) >= 1.0,
        "{enough} datagrams were sent, but none was dropped"
    );
    let waiting = value(&drops, QUEUED.name);
    assert!(
        waiting > 0.5 * granted && waiting < 1.5 * granted,
        "{waiting} octets wait in a buffer of {granted} octets"
    );
}

#[test]
fn kernel_drops_are_counted() {
    overflow("127.0.0.1:0");
}

#[test]
fn kernel_drops_over_ipv6_are_counted() {
    if PlainSocket::bind("[::1]:0").is_ok() {
        overflow("[::1]:0");
    }
}
