//! The requests and responses of etcd's JSON gateway (`/v3/...`). In this JSON, 64-bit numbers are
//! strings, octets are Base64, and zero values are omitted.

use std::ops::Range;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use thiserror::Error;

/// Maximum number of octets that [`WatchFrames`] holds. A frame of a watch cannot be larger.
pub const MAX_FRAME: usize = 32 << 20;

/// The etcd cluster that sent a response, and the revision of that cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RevisionHeader {
    /// The ID of the etcd cluster. If etcd is set up anew, the ID changes, unless the peer URLs and
    /// the cluster token are the same.
    #[serde(deserialize_with = "deserialize_number")]
    pub cluster_id: u64,
    /// The revision, which increases with each change.
    #[serde(deserialize_with = "deserialize_number")]
    pub revision: u64,
}

impl RevisionHeader {
    /// Whether the cluster is the same as in `reached`, and the revision is the same or later.
    pub fn continues(&self, reached: Self) -> bool {
        self.cluster_id == reached.cluster_id && self.revision >= reached.revision
    }
}

/// A key with its value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct KeyValue {
    /// The key.
    #[serde(deserialize_with = "deserialize_octets")]
    pub key: Vec<u8>,
    /// The value.
    #[serde(deserialize_with = "deserialize_octets")]
    pub value: Vec<u8>,
    /// The revision at which the key was created.
    #[serde(deserialize_with = "deserialize_number")]
    pub create_revision: u64,
    /// The revision of the last change of the key.
    #[serde(deserialize_with = "deserialize_number")]
    pub mod_revision: u64,
    /// The lease of the key; 0 for none. etcd deletes the key when the lease expires. The ID of a
    /// lease may be negative.
    #[serde(deserialize_with = "deserialize_number")]
    pub lease: i64,
}

/// One page of the keys in a range.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct KeyPage {
    /// The etcd cluster and its revision.
    pub header: RevisionHeader,
    /// The keys in order.
    pub kvs: Vec<KeyValue>,
    /// Whether there are further keys.
    pub more: bool,
    /// The number of all keys in the range, whether in this page or not.
    #[serde(deserialize_with = "deserialize_number")]
    pub count: u64,
}

/// The response to a login, with the token for all later requests.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct AuthToken {
    /// The token.
    pub token: String,
}

/// One frame of a watch.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct WatchResponse {
    /// The etcd cluster and its revision.
    pub header: RevisionHeader,
    /// True in the first frame, which confirms the watch.
    pub created: bool,
    /// Whether the watch has ended.
    pub canceled: bool,
    /// The reason why the watch has ended.
    pub cancel_reason: String,
    /// The compacted revision if the watch has ended because its start revision is compacted;
    /// otherwise 0.
    #[serde(deserialize_with = "deserialize_number")]
    pub compact_revision: u64,
    /// The changes in their order.
    pub events: Vec<KeyEvent>,
}

/// A change of one key.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct KeyEvent {
    /// Whether the key was set or deleted.
    #[serde(rename = "type")]
    pub kind: KeyEventKind,
    /// The key with its value. If the key was deleted, the value is empty.
    pub kv: KeyValue,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum KeyEventKind {
    /// The key was set.
    #[default]
    Put,
    /// The key was deleted.
    Delete,
}

impl KeyEvent {
    /// Whether the event reports a new key, rather than a change of an existing key.
    pub fn is_creation(&self) -> bool {
        self.kind == KeyEventKind::Put && self.kv.create_revision == self.kv.mod_revision
    }
}

/// Error of a response.
#[derive(Debug, Error)]
pub enum GatewayError {
    /// The response is too large.
    #[error("the response has more than {0} octets")]
    Large(usize),
    /// The response is not in etcd's JSON format.
    #[error("the response is not in etcd's JSON format: {0}")]
    Foreign(#[from] serde_json::Error),
    /// etcd reports an error.
    #[error("{0}")]
    Reported(String),
}

/// A request for one page of a range at `revision`; 0 means the latest revision.
pub fn range_request(keys: &Range<Vec<u8>>, limit: usize, revision: u64) -> Value {
    json!({
        "key": BASE64_STANDARD.encode(&keys.start),
        "range_end": BASE64_STANDARD.encode(&keys.end),
        "limit": limit.to_string(),
        "revision": revision.to_string(),
    })
}

/// A request that finds at most one key in a range: a key that was set after `revision`. The
/// response omits the value of the key. etcd reads the whole range for this request.
pub fn changed_keys_request(keys: &Range<Vec<u8>>, revision: u64) -> Value {
    let mut request = range_request(keys, 1, 0);
    request["min_mod_revision"] = json!((revision + 1).to_string());
    request["keys_only"] = json!(true);
    request
}

/// A request to watch all changes in a range from `revision` on.
pub fn watch_request(keys: &Range<Vec<u8>>, revision: u64) -> Value {
    json!({ "create_request": {
        "key": BASE64_STANDARD.encode(&keys.start),
        "range_end": BASE64_STANDARD.encode(&keys.end),
        "start_revision": revision.to_string(),
        "progress_notify": true,
    }})
}

/// The message of an error response, truncated at 200 characters. If the body is not an error of
/// etcd, returns the truncated body.
pub fn error_message(body: &[u8]) -> String {
    const SHOWN: usize = 200;
    let reported = serde_json::from_slice::<Value>(body).unwrap_or_default();
    // In the stream of a watch, the error is in the field `error` of an outer object.
    let text = message_field(&reported)
        .or_else(|| reported.get("error").and_then(message_field))
        .unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());

    text.chars()
        .filter(|c| !c.is_control())
        .take(SHOWN)
        .collect()
}

fn message_field(value: &Value) -> Option<String> {
    Some(value.get("message")?.as_str()?.to_owned())
}

/// Parses one frame of a watch.
///
/// # Errors
///
/// If `line` is not a frame, or reports an error.
pub fn parse_frame(line: &[u8]) -> Result<WatchResponse, GatewayError> {
    #[derive(Deserialize)]
    struct FrameLine {
        result: Option<WatchResponse>,
    }

    match serde_json::from_slice::<FrameLine>(line)?.result {
        Some(response) => Ok(response),
        None => Err(GatewayError::Reported(error_message(line))),
    }
}

/// The stream of a watch, one frame per line.
#[derive(Debug, Default)]
pub struct WatchFrames {
    pending: Vec<u8>,
    /// Number of octets at the start of `pending` that contain no line feed.
    searched: usize,
}

impl WatchFrames {
    /// Adds received octets.
    ///
    /// # Errors
    ///
    /// If the unread octets, including `octets`, exceed [`MAX_FRAME`].
    pub fn push_octets(&mut self, octets: &[u8]) -> Result<(), GatewayError> {
        if self.pending.len() + octets.len() > MAX_FRAME {
            return Err(GatewayError::Large(MAX_FRAME));
        }
        self.pending.extend_from_slice(octets);
        Ok(())
    }

    /// The next complete frame; `None` if no complete frame has been received.
    pub fn next_frame(&mut self) -> Option<Result<WatchResponse, GatewayError>> {
        loop {
            let unseen = self.pending.get(self.searched..)?;
            // Octets without a line feed are not searched again.
            let Some(end) = unseen.iter().position(|octet| *octet == b'\n') else {
                self.searched = self.pending.len();
                return None;
            };

            let line: Vec<u8> = self.pending.drain(..=self.searched + end).collect();
            self.searched = 0;
            if !line.trim_ascii().is_empty() {
                return Some(parse_frame(&line));
            }
        }
    }
}

fn deserialize_number<'de, D, N>(from: D) -> Result<N, D::Error>
where
    D: Deserializer<'de>,
    N: Deserialize<'de> + FromStr,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum NumberText<N> {
        Text(String),
        Plain(N),
    }

    match NumberText::deserialize(from)? {
        NumberText::Plain(number) => Ok(number),
        NumberText::Text(text) => text
            .parse()
            .map_err(|_| D::Error::custom("the text is not a number")),
    }
}

fn deserialize_octets<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    BASE64_STANDARD
        .decode(text)
        .map_err(|_| D::Error::custom("the text is not Base64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from etcd 3.4.23.
    const CREATED: &str = r#"{"result":{"header":{"cluster_id":"324952591200643719","member_id":"3319814642761637952","revision":"2","raft_term":"2"},"created":true}}"#;
    const PUT: &str = r#"{"result":{"header":{"cluster_id":"324952591200643719","member_id":"3319814642761637952","revision":"2","raft_term":"2"},"events":[{"kv":{"key":"L3NreWRucy9sb2NhbC9h","create_revision":"2","mod_revision":"2","version":"1","value":"eyJob3N0IjoiMS4yLjMuNCJ9"}}]}}"#;
    const DELETE: &str = r#"{"result":{"header":{"cluster_id":"324952591200643719","revision":"3"},"events":[{"type":"DELETE","kv":{"key":"L3NreWRucy9sb2NhbC9h","mod_revision":"3"}}]}}"#;
    const COMPACTED: &str = r#"{"result":{"header":{"cluster_id":"324952591200643719","raft_term":"2"},"canceled":true,"compact_revision":"3"}}"#;
    const HEADER: RevisionHeader = RevisionHeader {
        cluster_id: 324_952_591_200_643_719,
        revision: 2,
    };

    fn frames(stream: &[u8], piece: usize) -> Vec<WatchResponse> {
        let mut frames = WatchFrames::default();
        let mut read = Vec::new();
        for piece in stream.chunks(piece) {
            frames.push_octets(piece).unwrap();
            while let Some(frame) = frames.next_frame() {
                read.push(frame.unwrap());
            }
        }
        read
    }

    #[test]
    fn frames_in_pieces_are_reassembled() {
        let stream = format!("{CREATED}\n{PUT}\n\n{DELETE}\n{COMPACTED}\n{CREATED}");
        let set = KeyValue {
            key: b"/skydns/local/a".into(),
            value: br#"{"host":"1.2.3.4"}"#.into(),
            create_revision: 2,
            mod_revision: 2,
            lease: 0,
        };
        let deleted = KeyValue {
            value: Vec::new(),
            create_revision: 0,
            mod_revision: 3,
            ..set.clone()
        };
        let later = RevisionHeader {
            revision: 3,
            ..HEADER
        };
        let expected = [
            WatchResponse {
                header: HEADER,
                created: true,
                ..WatchResponse::default()
            },
            WatchResponse {
                header: HEADER,
                events: vec![KeyEvent {
                    kind: KeyEventKind::Put,
                    kv: set,
                }],
                ..WatchResponse::default()
            },
            WatchResponse {
                header: later,
                events: vec![KeyEvent {
                    kind: KeyEventKind::Delete,
                    kv: deleted,
                }],
                ..WatchResponse::default()
            },
            WatchResponse {
                header: RevisionHeader {
                    revision: 0,
                    ..HEADER
                },
                canceled: true,
                compact_revision: 3,
                ..WatchResponse::default()
            },
        ];
        for piece in [1, 7, 100, stream.len()] {
            assert_eq!(frames(stream.as_bytes(), piece), expected, "{piece}");
        }
    }

    #[test]
    fn etcd_errors_and_foreign_bodies_are_reported() {
        let cases = [
            (
                r#"{"error":"e","message":"required revision has been compacted","code":11}"#,
                "required revision has been compacted",
            ),
            (
                r#"{"error":{"grpc_code":14,"http_code":503,"message":"no leader"}}"#,
                "no leader",
            ),
            ("<html>\n404", "<html>404"),
        ];
        for (body, expected) in cases {
            assert_eq!(error_message(body.as_bytes()), expected);
        }
        assert_eq!(
            parse_frame(cases[1].0.as_bytes()).unwrap_err().to_string(),
            "no leader"
        );
        assert!(matches!(
            parse_frame(b"<html>"),
            Err(GatewayError::Foreign(_))
        ));
        assert!(matches!(
            parse_frame(br#"{"result":{"events":[{"kv":{"key":"%"}}]}}"#),
            Err(GatewayError::Foreign(_))
        ));
    }

    #[test]
    fn endless_frame_is_an_error() {
        let mut frames = WatchFrames::default();
        let piece = vec![b' '; 1 << 20];
        let fitting = (0..=MAX_FRAME >> 20)
            .take_while(|_| frames.push_octets(&piece).is_ok() && frames.next_frame().is_none());
        assert_eq!(fitting.count(), MAX_FRAME >> 20);
    }
}
