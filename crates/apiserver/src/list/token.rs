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
        let json = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
        let token: Option<Self> = json.and_then(|json| serde_json::from_slice(&json).ok());
        token
            .filter(|token| token.v == VERSION && token.rv != 0 && !token.start.is_empty())
            .ok_or_else(|| Status::bad_request("invalid continue token: continue key is not valid"))
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
    fn nonsense_is_rejected() {
        for text in ["nonsense", "", "!", "e30", "eyJ2IjoieCIsInJ2IjoxLCJzdGFydCI6Ii9hIn0", "W10"] {
            assert_eq!(Token::decode(text).unwrap_err().code(), 400, "{text}");
        }
    }
}
