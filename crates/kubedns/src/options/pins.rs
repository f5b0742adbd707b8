//! `--upstream-tls-pin`: pinned keys of upstream servers.

use std::net::IpAddr;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use skydns::forward::KeyPin;
use thiserror::Error;
use wire::rfc1123::is_host;

/// The pinned keys, in the given order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins(pub Vec<KeyPin>);

/// Invalid pin.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not a pin: expected NAME=BASE64, where NAME is a host name or an address without brackets or port, and BASE64 encodes 32 octets; commas separate several pins"
)]
pub struct PinError(String);

impl FromStr for Pins {
    type Err = PinError;

    fn from_str(text: &str) -> Result<Self, PinError> {
        let pins = text.split(',').map(str::trim).filter(|pin| !pin.is_empty());
        pins.map(|pin| parse_pin(pin).ok_or_else(|| PinError(pin.to_owned())))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn parse_pin(text: &str) -> Option<KeyPin> {
    let (name, hash) = text.split_once('=')?;
    let sha256 = STANDARD.decode(hash).ok()?.try_into().ok()?;
    let name = normalize_name(name)?;
    Some(KeyPin { name, sha256 })
}

/// A host name in lower case, or an address as [`IpAddr`] displays it. `None` if `text` is neither
/// a host name nor an address.
fn normalize_name(text: &str) -> Option<String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_string());
    }
    let name = text.to_ascii_lowercase();
    is_host(&name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_pins_are_parsed_and_invalid_pins_are_rejected() {
        const HASH: &str = "MPVr/9Tc/29KpKS5Z010/QQHZogdV01DwLYr9xE60tE=";
        let names = |text: &str| -> Result<Vec<String>, String> {
            let pins: Pins = text.parse().map_err(|error: PinError| error.to_string())?;
            assert!(
                pins.0
                    .iter()
                    .all(|pin| pin.sha256.starts_with(&[0x30, 0xf5])
                        && pin.sha256.ends_with(&[0xd1]))
            );
            Ok(pins.0.into_iter().map(|pin| pin.name).collect())
        };
        for (given, expected) in [
            ("", &[][..]),
            (
                &format!("DNS.quad9.net={HASH}, 2620:fe::fe={HASH},"),
                &["dns.quad9.net", "2620:fe::fe"],
            ),
            (&format!("0:0:0:0:0:0:0:1={HASH}"), &["::1"]),
            (&format!("2620:FE:0::FE={HASH}"), &["2620:fe::fe"]),
        ] {
            let expected = expected.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(names(given), Ok(expected), "{given}");
        }

        for wrong in [
            "dns.quad9.net",
            "=AAAA",
            &format!("={HASH}"),
            "a=AAAA",
            "a=!",
            &format!("a==={HASH}"),
            &format!("[::1]={HASH}"),
            &format!("[::1]:24853={HASH}"),
            &format!("9.9.9.9:853={HASH}"),
            &format!("::1.={HASH}"),
            &format!("9.9.9={HASH}"),
            &format!("dns.quad9.net.={HASH}"),
            &format!("tls://9.9.9.9={HASH}"),
        ] {
            let error = format!(
                "{wrong:?} is not a pin: expected NAME=BASE64, where NAME is a host name or an address without brackets or port, and BASE64 encodes 32 octets; commas separate several pins"
            );
            assert_eq!(names(wrong), Err(error));
        }
    }
}
