//! The query string of a request.

use crate::status::Status;

/// Parameters in the given order. If a name occurs several times, the first value is used.
#[derive(Debug, Default, Clone)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Parses a raw query string. Parsing never fails, as on a real server.
    pub(crate) fn parse(raw: &str) -> Self {
        let pairs = form_urlencoded::parse(raw.as_bytes())
            .into_owned()
            .collect();
        Self { pairs }
    }

    /// A parameter; empty if missing.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.pairs
            .iter()
            .find(|(key, _)| key == name)
            .map_or("", |(_, value)| value.as_str())
    }

    /// A flag: true if the parameter is present, unless the value is false in Go's syntax, such as
    /// `0` or `false`.
    pub(crate) fn flag(&self, name: &str) -> bool {
        let given = self.pairs.iter().find(|(key, _)| key == name);
        given.is_some_and(|(_, value)| {
            !matches!(
                value.as_str(),
                "0" | "f" | "F" | "false" | "FALSE" | "False"
            )
        })
    }

    /// A non-negative number, if given.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Status> {
        match self.text(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                Status::bad_request(format!(
                    "strconv.ParseInt: parsing \"{text}\": invalid syntax"
                ))
            }),
        }
    }

    /// A resource version, if given.
    pub(crate) fn version(&self, name: &str) -> Result<Option<u64>, Status> {
        match self.text(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| bad_version(name, text)),
        }
    }
}

/// A real server answers 500 to a malformed `resourceVersion`, but 400 to any other malformed
/// number.
fn bad_version(name: &str, text: &str) -> Status {
    let message = format!(
        "{name}: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
    );
    Status::failure(500, None, message)
}
