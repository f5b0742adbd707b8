//! The shared TSIG key, read from a file in the format of `tsig-keygen`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use wire::Name;

/// A key shared with the peers (RFC 8945, section 4.2).
pub struct TsigKey {
    name: Name,
    algorithm: TsigAlgorithm,
    secret: hmac::Key,
}

/// Error of a text that is not a valid key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseTsigKeyError {
    /// The text does not have the form of a key.
    #[error(
        "expected one key as tsig-keygen writes it (key \"NAME\" {{ algorithm ALGORITHM; secret \"BASE64\"; }};)"
    )]
    Form,
    /// The name is not a domain name, or is the root.
    #[error("{0:?} is not a name for a key: expected a domain name other than the root")]
    Name(String),
    /// The algorithm is not one of the accepted algorithms.
    #[error("{0:?} is not an accepted algorithm: expected hmac-sha256, hmac-sha384 or hmac-sha512")]
    Algorithm(String),
    /// The secret is not base64.
    #[error("the secret is not base64")]
    Secret,
    /// The secret is too short.
    #[error("the secret has {0} octets: expected 16 or more")]
    Short(usize),
}

/// Minimum length of a secret, in octets. A shorter secret could be guessed.
const MIN_SECRET: usize = 16;

/// The accepted algorithms. RFC 8945, section 6, recommends SHA-256 and permits the other two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TsigAlgorithm {
    Sha256,
    Sha384,
    Sha512,
}

impl TsigAlgorithm {
    const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];

    /// The accepted algorithm with this name. The case of letters is ignored.
    fn find(name: &str) -> Option<Self> {
        let lower = name.trim_end_matches('.').to_ascii_lowercase();
        Self::ALL.into_iter().find(|known| {
            // The name has one label, which is between its length octet and the root.
            let label = known.wire().get(1..).and_then(<[u8]>::split_last);
            label.is_some_and(|(_, label)| label == lower.as_bytes())
        })
    }

    /// The name of the algorithm in wire format.
    pub(super) fn wire(self) -> &'static [u8] {
        match self {
            Self::Sha256 => b"\x0bhmac-sha256\x00",
            Self::Sha384 => b"\x0bhmac-sha384\x00",
            Self::Sha512 => b"\x0bhmac-sha512\x00",
        }
    }

    fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }
}

impl TsigKey {
    /// Parses a file with one key in the format of `tsig-keygen`. `named`, `dig -k` and `nsupdate
    /// -k` read the same format.
    ///
    /// # Errors
    ///
    /// Fails if the text has another form, or if a value is not accepted.
    pub fn parse(text: &str) -> Result<Self, ParseTsigKeyError> {
        let tokens = split_tokens(text);
        let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let ["key", name, "{", statements @ .., "}", ";"] = tokens.as_slice() else {
            return Err(ParseTsigKeyError::Form);
        };

        // The two statements may be in any order.
        let (["algorithm", algorithm, ";", "secret", secret, ";"]
        | ["secret", secret, ";", "algorithm", algorithm, ";"]) = *statements
        else {
            return Err(ParseTsigKeyError::Form);
        };
        Self::new(name, algorithm, secret)
    }

    fn new(name: &str, algorithm: &str, secret: &str) -> Result<Self, ParseTsigKeyError> {
        // The root cannot name a key.
        let parsed = Name::parse(name).ok().filter(|name| name.label_count() > 0);
        let parsed = parsed.ok_or_else(|| ParseTsigKeyError::Name(name.to_owned()))?;

        let known = TsigAlgorithm::find(algorithm);
        let algorithm = known.ok_or_else(|| ParseTsigKeyError::Algorithm(algorithm.to_owned()))?;

        let secret = STANDARD
            .decode(secret)
            .map_err(|_| ParseTsigKeyError::Secret)?;
        if secret.len() < MIN_SECRET {
            return Err(ParseTsigKeyError::Short(secret.len()));
        }
        let secret = hmac::Key::new(algorithm.hmac(), &secret);
        Ok(Self {
            name: parsed.to_lowercase(),
            algorithm,
            secret,
        })
    }

    /// The name of the key, in lower case.
    pub fn name(&self) -> &Name {
        &self.name
    }

    pub(super) fn algorithm(&self) -> TsigAlgorithm {
        self.algorithm
    }

    pub(super) fn secret(&self) -> &hmac::Key {
        &self.secret
    }
}

impl fmt::Debug for TsigKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("name", &self.name)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// Splits a text into words, quoted strings, braces and semicolons. Comments that begin with `#` or
/// `//` are removed. `//` within a word does not begin a comment, because base64 may contain `//`.
fn split_tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    for line in text.lines() {
        let mut rest = line.trim_start();
        // A comment extends to the end of the line.
        while !rest.is_empty() && !rest.starts_with('#') && !rest.starts_with("//") {
            let (token, next) = rest.split_at(token_length(rest));
            tokens.push(token.trim_matches('"').to_owned());
            rest = next.trim_start();
        }
    }
    tokens
}

/// Length of the token at the start of `text`, in octets.
fn token_length(text: &str) -> usize {
    let end = match text.as_bytes().first() {
        Some(b'{' | b'}' | b';') => Some(1),
        // The string ends after its second quote.
        Some(b'"') => {
            let quoted = text.get(1..).unwrap_or_default();
            quoted.find('"').map(|at| at + 2)
        }
        _ => text.find(|c: char| c.is_whitespace() || "{};\"#".contains(c)),
    };
    end.unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "c2VjcmV0IG9mIHR3ZW50eSBvY3RldHM=";

    #[test]
    fn valid_key_is_parsed() {
        for (what, text) in [
            (
                "as tsig-keygen writes it",
                format!("key \"Xfer\" {{\n\talgorithm hmac-sha256;\n\tsecret \"{SECRET}\";\n}};\n"),
            ),
            (
                "in one line, without quotes",
                format!("key xfer. {{secret {SECRET};algorithm HMAC-SHA512.;}};"),
            ),
            (
                "with comments",
                format!(
                    "# ours\nkey xfer {{ // the name\n algorithm hmac-sha384; secret \"{SECRET}\"; }};#end"
                ),
            ),
        ] {
            let key = TsigKey::parse(&text).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(key.name().to_string(), "xfer.", "{what}");
            assert!(!format!("{key:?}").contains("secret"), "{key:?}");
        }
    }

    fn key_text(name: &str, algorithm: &str, secret: &str) -> String {
        format!("key \"{name}\" {{ algorithm {algorithm}; secret \"{secret}\"; }};")
    }

    #[test]
    fn invalid_key_is_rejected_with_reason() {
        for (text, error) in [
            (String::new(), ParseTsigKeyError::Form),
            (
                format!("hmac-sha256:xfer:{SECRET}"),
                ParseTsigKeyError::Form,
            ),
            (
                "key \"xfer\" { algorithm hmac-sha256; };".to_owned(),
                ParseTsigKeyError::Form,
            ),
            (
                key_text("xfer", "hmac-sha256", SECRET).repeat(2),
                ParseTsigKeyError::Form,
            ),
            (
                key_text("a..b", "hmac-sha256", SECRET),
                ParseTsigKeyError::Name("a..b".to_owned()),
            ),
            (
                key_text("", "hmac-sha256", SECRET),
                ParseTsigKeyError::Name(String::new()),
            ),
            (
                key_text("xfer", "hmac-md5", SECRET),
                ParseTsigKeyError::Algorithm("hmac-md5".to_owned()),
            ),
            (
                key_text("xfer", "hmac-sha256", "!"),
                ParseTsigKeyError::Secret,
            ),
            (
                key_text("xfer", "hmac-sha256", "c2hvcnQ="),
                ParseTsigKeyError::Short(5),
            ),
        ] {
            assert_eq!(TsigKey::parse(&text).map(|_| ()), Err(error), "{text}");
        }
    }
}
