//! The value of a key: a SkyDNS message, which is a JSON object. Keys are parsed in [`crate::key`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;
use skydns::Host;
use skydns::record::Extras;
use smol_str::SmolStr;
use thiserror::Error;
use wire::Name;

/// Maximum size of a value, in octets. Larger values are rejected.
pub const MAX_VALUE: usize = 16 << 10;
/// TTL of messages without a TTL, in seconds. CoreDNS has the same default.
pub const DEFAULT_TTL: u32 = 300;
/// Maximum TTL of messages with a lease, in seconds. etcd deletes such a message when its lease
/// expires, which may be soon. In CoreDNS, the same value is the default minimum TTL of such
/// messages.
pub const LEASED_TTL: u32 = 30;
/// Maximum TTL, in seconds (RFC 2181, section 8).
const MAX_TTL: u32 = i32::MAX.unsigned_abs();

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkydnsMessage {
    /// The address or the target name; `Nothing` if the message has neither.
    pub host: Host<'static>,
    /// Port of SRV answers.
    pub port: u16,
    /// Priority of SRV answers, preference of MX answers.
    pub priority: u16,
    /// Weight of SRV answers; 0 means 100.
    pub weight: u16,
    /// TTL, in seconds.
    pub ttl: u32,
    /// The text of TXT answers, and whether the message is also a mail exchange.
    pub extras: Extras,
    /// Number of leftmost labels to remove from the name of the key. If the host is an address, the
    /// remaining name is the target in SRV, MX and NS answers. A number larger than the number of
    /// labels below the zone is ignored.
    pub target_strip: usize,
    /// The group; empty for none. An answer usually contains the messages of one group, and the
    /// messages without a group, see [`crate::tree`].
    pub group: SmolStr,
}

/// Error of a value that is not a message.
#[derive(Debug, Error)]
pub enum InvalidMessage {
    /// The value is too long.
    #[error("the value has {0} octets, more than {MAX_VALUE}")]
    Long(usize),
    /// The value is not a JSON object, a field has the wrong type, or the TTL is out of range.
    #[error("not a SkyDNS message: {0}")]
    Json(#[from] serde_json::Error),
    /// A number other than the TTL is out of range.
    #[error("{field} {value} is not in the range 0 to {}", u16::MAX)]
    Range {
        /// The field.
        field: &'static str,
        /// The value of the field.
        value: i64,
    },
    /// The host is neither an address nor a name.
    #[error("host {0:?} is neither an address nor a name")]
    Host(String),
}

/// The fields in JSON. Unknown fields are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MessageFields {
    host: String,
    port: i64,
    priority: i64,
    weight: i64,
    text: String,
    mail: bool,
    ttl: u32,
    targetstrip: i64,
    group: String,
}

impl SkydnsMessage {
    /// Parses a value.
    ///
    /// # Errors
    ///
    /// If the value is not a valid message.
    pub fn parse(value: &[u8]) -> Result<Self, InvalidMessage> {
        if value.len() > MAX_VALUE {
            return Err(InvalidMessage::Long(value.len()));
        }

        // As in Go, the case of field names is ignored, and `null` means a missing field.
        let written: BTreeMap<String, Value> = serde_json::from_slice(value)?;
        let object = written
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(field, value)| (field.to_ascii_lowercase(), value))
            .collect();
        let fields: MessageFields = serde_json::from_value(Value::Object(object))?;

        // As in SkyDNS, zero means a missing value.
        let priority = match number_in_range("priority", fields.priority)? {
            0 => skydns::record::PRIORITY,
            priority => priority,
        };
        let ttl = match fields.ttl {
            0 => DEFAULT_TTL,
            ttl => ttl.min(MAX_TTL),
        };
        Ok(Self {
            host: parse_host(&fields.host)?,
            port: number_in_range("port", fields.port)?,
            priority,
            weight: number_in_range("weight", fields.weight)?,
            ttl,
            extras: Extras {
                text: fields.text.into(),
                mail: fields.mail,
            },
            target_strip: number_in_range("targetstrip", fields.targetstrip)?.into(),
            group: fields.group.into(),
        })
    }

    /// The message with the TTL limited to [`LEASED_TTL`], for a key with a lease.
    #[must_use]
    pub fn with_leased_ttl(self) -> Self {
        Self {
            ttl: self.ttl.min(LEASED_TTL),
            ..self
        }
    }
}

fn number_in_range(field: &'static str, value: i64) -> Result<u16, InvalidMessage> {
    u16::try_from(value).map_err(|_| InvalidMessage::Range { field, value })
}

/// Parses an address or a name. An IPv4-mapped IPv6 address becomes an IPv4 address, as in Go.
fn parse_host(text: &str) -> Result<Host<'static>, InvalidMessage> {
    if text.is_empty() {
        return Ok(Host::Nothing);
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Host::Address(address.to_canonical()));
    }

    // A DNS name may contain any octet, but the host of a message must be printable.
    let is_printable = text.bytes().all(|octet| octet.is_ascii_graphic());
    match Name::parse(text) {
        Ok(name) if is_printable => Ok(Host::Name(Cow::Owned(name))),
        _ => Err(InvalidMessage::Host(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use testkit::table;

    use super::*;

    fn mk_message(host: Host<'static>) -> SkydnsMessage {
        SkydnsMessage {
            host,
            port: 0,
            priority: 10,
            weight: 0,
            ttl: 300,
            extras: Extras::default(),
            target_strip: 0,
            group: SmolStr::default(),
        }
    }

    fn mk_name(text: &str) -> Host<'static> {
        Host::Name(Cow::Owned(Name::parse(text).unwrap()))
    }

    fn mk_address(text: &str) -> Host<'static> {
        Host::Address(text.parse().unwrap())
    }

    fn assert_parsed(case: &str, json: &str, expected: &SkydnsMessage) {
        let message = SkydnsMessage::parse(json.as_bytes()).unwrap();
        assert_eq!(message, *expected, "{case}");
    }

    #[test]
    fn host_is_address_name_or_nothing() {
        for (case, json, host) in [
            ("nothing at all", "{}", Host::Nothing),
            (
                "an address",
                r#"{"host":"10.0.1.125"}"#,
                mk_address("10.0.1.125"),
            ),
            (
                "an IPv6 address",
                r#"{"host":"2003::8:1"}"#,
                mk_address("2003::8:1"),
            ),
            (
                "an IPv4-mapped IPv6 address",
                r#"{"host":"::ffff:10.0.0.1"}"#,
                mk_address("10.0.0.1"),
            ),
            (
                "a name",
                r#"{"host":"Service1.example.com."}"#,
                mk_name("Service1.example.com"),
            ),
        ] {
            assert_parsed(case, json, &mk_message(host));
        }
    }

    #[test]
    fn message_fields_are_parsed() {
        for (case, json, expected) in [
            (
                "all fields",
                r#"{"host":"a.example","port":8080,"priority":20,"weight":5,"text":"x y","mail":true,"ttl":60,"targetstrip":2,"group":"g1"}"#,
                SkydnsMessage {
                    port: 8080,
                    priority: 20,
                    weight: 5,
                    extras: Extras {
                        text: "x y".into(),
                        mail: true,
                    },
                    ttl: 60,
                    target_strip: 2,
                    group: "g1".into(),
                    ..mk_message(mk_name("a.example"))
                },
            ),
            (
                "a message of kube2sky",
                r#"{"host":"10.0.0.10","priority":10,"weight":10,"ttl":30}"#,
                SkydnsMessage {
                    weight: 10,
                    ttl: 30,
                    ..mk_message(mk_address("10.0.0.10"))
                },
            ),
            (
                "a message of external-dns",
                r#"{"host":"1.2.3.4","text":"\"heritage=external-dns\"","targetstrip":1,"setIdentifier":"a"}"#,
                SkydnsMessage {
                    extras: Extras {
                        text: "\"heritage=external-dns\"".into(),
                        mail: false,
                    },
                    target_strip: 1,
                    ..mk_message(mk_address("1.2.3.4"))
                },
            ),
            (
                "fields in upper case, and null",
                r#"{"Host":"10.0.0.1","TTL":5,"port":null}"#,
                SkydnsMessage {
                    ttl: 5,
                    ..mk_message(mk_address("10.0.0.1"))
                },
            ),
        ] {
            assert_parsed(case, json, &expected);
        }
    }

    #[test]
    fn lease_limits_ttl() {
        for (ttl, expected) in [(0, 30), (20, 20), (3600, 30)] {
            let message = SkydnsMessage::parse(format!("{{\"ttl\":{ttl}}}").as_bytes()).unwrap();
            assert_eq!(message.with_leased_ttl().ttl, expected, "{ttl}");
        }
    }

    #[test]
    fn invalid_message_has_reason() {
        const INVALID: &str = r#"
                            | not a SkyDNS message: EOF
            null            | not a SkyDNS message: invalid type: null
            []              | not a SkyDNS message: invalid type: sequence
            {"host":1}      | not a SkyDNS message: invalid type: integer
            {"port":"80"}   | not a SkyDNS message: invalid type: string
            {"port":65536}  | port 65536 is not in the range 0 to 65535
            {"weight":-1}   | weight -1 is not in the range 0 to 65535
            {"host":"a..b"} | host "a..b" is neither an address nor a name
            {"host":"a b"}  | host "a b" is neither an address nor a name
        "#;

        let long = format!(r#"{{"text":"{}"}}"#, "x".repeat(MAX_VALUE));
        let long = [long.as_str(), "the value has 16395 octets, more than 16384"];
        for [value, expected] in table::rows(INVALID).into_iter().chain([long]) {
            let error = SkydnsMessage::parse(value.as_bytes())
                .unwrap_err()
                .to_string();
            assert!(error.starts_with(expected), "{value}: {error}");
        }
    }
}
