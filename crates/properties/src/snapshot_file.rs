//! A file with the objects of the cluster, from which kubedns starts without the API server.

use cluster::persist::{SavedSnapshot, encode};
use skydns::Zone;

use crate::example;
use crate::memory;
use crate::watch;

const DOMAIN: &str = "cluster.local.";
const HEADER: &str = r#"{"format":"kubedns snapshot","version":1,"written":1700000000,"domain":"cluster.local.","source":"#;

/// Reading a snapshot file with any content takes at most a fixed amount of memory plus a multiple
/// of the file's size. Answers with the records of an accepted file can be parsed. The records stay
/// the same when the file is written and read again.
///
/// The input is also used for a second file with a correct header and checksum, because a fuzzer
/// cannot guess the checksum. For this file, the first octet selects the source of endpoints, and
/// the other octets are the lines.
pub fn snapshot_file(input: &[u8]) {
    served(input);
    let Some((choice, lines)) = input.split_first() else {
        return;
    };
    let source = if choice & 1 == 0 {
        "Endpoints"
    } else {
        "EndpointSlices"
    };
    served(&framed(source, lines));
}

/// A snapshot file with these lines and a correct header and checksum.
fn framed(source: &str, lines: &[u8]) -> Vec<u8> {
    let mut content = format!("{HEADER}\"{source}\"}}\n").into_bytes();
    let mut objects = 0;
    for line in lines
        .split(|octet| *octet == b'\n')
        .filter(|line| !line.is_empty())
    {
        content.extend_from_slice(line);
        content.push(b'\n');
        objects += 1;
    }
    // The checksum is FNV-1a with 64 bits.
    let sum = content
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, octet| {
            (hash ^ u64::from(*octet)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    content.extend_from_slice(
        format!("{{\"objects\":{objects},\"checksum\":\"{sum:016x}\"}}\n").as_bytes(),
    );
    content
}

fn served(content: &[u8]) {
    let decoded = memory::bounded(content.len(), 256, || {
        SavedSnapshot::decode(content, DOMAIN)
    });
    let saved = match decoded {
        Ok(saved) => saved,
        Err(error) => {
            let reason = error.to_string();
            // The reason may quote any octets of the file, because the log escapes them. So any
            // reason that is not empty is accepted.
            assert!(!reason.is_empty());
            return;
        }
    };
    let (source, objects, _age) = (saved.source(), saved.object_count(), saved.age());
    let (mut index, published) = example::index(Zone::new(&example::name("cluster.local")));
    saved.serve_from(&mut index);
    index.publish();
    assert!(
        index.has_synced() && !index.has_listed(),
        "the objects of the file must be served, and must not count as lists from the API server"
    );
    watch::answers(&index, &published.get());
    let visible = watch::visible(&published);
    let Some(written) = encode(&index.content(), source, DOMAIN) else {
        unreachable!("the objects of an accepted file cannot be written again")
    };
    let read = SavedSnapshot::decode(&written, DOMAIN);
    let read = read
        .unwrap_or_else(|error| unreachable!("{error} in {}", String::from_utf8_lossy(&written)));
    assert!(
        read.object_count() <= objects,
        "the file written again must not have more objects"
    );
    let (mut index, published) = example::index(Zone::new(&example::name("cluster.local")));
    read.serve_from(&mut index);
    index.publish();
    assert_eq!(
        watch::visible(&published),
        visible,
        "the file written again must give the same records"
    );
}
