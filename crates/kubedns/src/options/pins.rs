//! `--upstream-tls-pin`: pinned keys of upstream servers.

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use skydns::forward::KeyPin;
use thiserror::Error;

/// The pinned keys, in the given order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins(pub Vec<KeyPin>);

/// Invalid pin.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not a pin: expected NAME=BASE64, where BASE64 encodes 32 octets; commas separate several pins"
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
    let (name, hash) = text.split_once('=').filter(|(name, _)| !name.is_empty())?;
    let sha256 = STANDARD.decode(hash).ok()?.try_into().ok()?;
    Some(KeyPin {
        name: name.to_ascii_lowercase(),
        sha256,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_parsed() {
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
        assert_eq!(names(""), Ok(Vec::new()));
        assert_eq!(
            names(&format!("DNS.quad9.net={HASH}, 2620:fe::fe={HASH},")),
            Ok(vec!["dns.quad9.net".to_owned(), "2620:fe::fe".to_owned()])
        );
        for wrong in [
            "dns.quad9.net",
            "=AAAA",
            "a=AAAA",
            "a=!",
            &format!("a==={HASH}"),
        ] {
            let error = format!(
                "{wrong:?} is not a pin: expected NAME=BASE64, where BASE64 encodes 32 octets; commas separate several pins"
            );
            assert_eq!(names(wrong), Err(error));
        }
    }
}
