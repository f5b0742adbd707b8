//! Continue tokens, in the form a real server gives them: base64 of a small JSON object with a version and a key.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::status::Status;

const VERSION: &str = "meta.k8s.io/v1";

/// Where to go on, and at which version.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Token {
    v: String,
    /// Negative: at whatever version is current.
    rv: i64,
    start: String,
}

impl Token {
    /// Goes on after the object of `key`.
    pub(super) fn after(version: u64, key: &str) -> Self {
        let rv = i64::try_from(version).unwrap_or(i64::MAX);
        Self { v: VERSION.to_owned(), rv, start: format!("/{key}\0") }
    }

    /// The same place, at the current version.
    pub(super) fn inconsistent(self) -> Self {
        Self { rv: -1, ..self }
    }

    /// The version to list at, if it says one.
    pub(super) fn version(&self) -> Option<u64> {
        u64::try_from(self.rv).ok()
    }

    /// The key to start at.
    pub(super) fn start(&self) -> &str {
        self.start.trim_start_matches('/')
    }

    pub(super) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    pub(super) fn decode(text: &str) -> Result<Self, Status> {
        let refuse = |why: String| {
            Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let json = URL_SAFE_NO_PAD
            .decode(text.trim_end_matches('='))
            .map_err(|error| refuse(format!("illegal base64 data: {error}")))?;
        match json.first() {
            Some(b'{') => {}
            Some(octet) => {
                return Err(refuse(format!(
                    "invalid character {} looking for beginning of value",
                    quoted(*octet)
                )));
            }
            None => return Err(refuse("unexpected end of JSON input".to_owned())),
        }
        let token: Self = serde_json::from_slice(&json).map_err(|error| refuse(error.to_string()))?;
        if token.v != VERSION {
            return Err(refuse(format!("unrecognized version of continue token: {}", token.v)));
        }
        if token.rv == 0 || token.start.is_empty() {
            return Err(refuse("incorrect encoded start resourceVersion or key".to_owned()));
        }
        Ok(token)
    }
}

fn quoted(octet: u8) -> String {
    match octet {
        b'\'' | b'\\' => format!("'\\{}'", char::from(octet)),
        0x20..0x7f => format!("'{}'", char::from(octet)),
        _ => format!("'\\x{octet:02x}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_like_that_of_a_real_server() {
        let token = Token::after(215, "apps/db");
        assert_eq!(
            token.encode(),
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjE1LCJzdGFydCI6Ii9hcHBzL2RiXHUwMDAwIn0"
        );
        assert_eq!(Token::decode(&token.encode()), Ok(token));
    }

    #[test]
    fn nonsense_is_refused_in_the_words_of_a_real_server() {
        assert_eq!(
            Token::decode("nonsense").unwrap_err().message(),
            "invalid continue token: continue key is not valid: invalid character '\\x9e' looking for beginning of value"
        );
        for text in ["", "!", "e30", "eyJ2IjoieCIsInJ2IjoxLCJzdGFydCI6Ii9hIn0", "W10"] {
            assert_eq!(Token::decode(text).unwrap_err().code(), 400, "{text}");
        }
    }
}
