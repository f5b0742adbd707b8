//! The request for an explanation. Each parse error is one line.

mod pasted;

use std::net::IpAddr;

use daemon::http::request_target;
use wire::Name;
use wire::mnemonic::{UnknownType, parse_type};
use wire::rfc1123::is_label;
use wire::shorten;
use wire::{reverse, rtype};

/// The types to query if a request has no type: A and AAAA, which programs query for addresses, and
/// SRV, which has the ports. For a reverse name, the type is PTR.
pub(crate) const DEFAULT_TYPES: [u16; 3] = [rtype::A, rtype::AAAA, rtype::SRV];
/// Maximum length of the name, in octets.
const MAX_NAME: usize = 255;
/// Maximum length of the search list, in octets. Kubernetes has the same limit.
const MAX_SEARCH_TEXT: usize = 2048;
/// Maximum number of domains in the search list. Kubernetes has the same limit.
const MAX_SEARCH_DOMAINS: usize = 32;
/// Default of `ndots`, as in the resolv.conf of a pod.
const NDOTS: u8 = 5;
/// The highest `ndots` that resolvers accept.
const MAX_NDOTS: u8 = 15;
/// The namespace of the pod that queries the name, if the request has no search list.
const NAMESPACE: &str = "default";

/// A parsed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExplainRequest {
    /// The name as given, before parsing.
    pub(crate) text: String,
    /// The name or the address that [`pasted::name_in_text`] finds in `text`.
    pub(crate) meant: String,
    /// The domain name to explain; for an address, its reverse name.
    pub(crate) name: Name,
    /// Whether the resolver applies no search list: for reverse names, and names with a dot at the
    /// end.
    pub(crate) absolute: bool,
    /// The record types in the order of the queries.
    pub(crate) types: Vec<u16>,
    pub(crate) search: RequestedSearch,
    /// For names with fewer dots than this number, the resolver tries the search list first.
    pub(crate) ndots: u8,
}

/// A search list: the list of a pod in the namespace, or explicit domains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestedSearch {
    Namespace(String),
    Domains(Vec<Name>),
}

/// Invalid request; the message is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExplainRequestError {
    #[error(
        "the request has no name: use /explain?name=NAME, optionally with &type=TYPE, \
         &search=NAMESPACE, &ndots=5, &format=text"
    )]
    NoName,
    #[error("{0:?} contains no name")]
    NoNameIn(String),
    #[error("the text has {0} octets, but a name has at most {MAX_NAME}")]
    LongName(usize),
    #[error("not a domain name: {0}")]
    Name(#[from] wire::name::NameError),
    #[error(
        "not a domain name: only visible ASCII characters are accepted; write other letters in the \
         form xn--..."
    )]
    Characters,
    #[error(transparent)]
    Type(#[from] UnknownType),
    #[error(
        "the search list is too long: at most {MAX_SEARCH_DOMAINS} domains and {MAX_SEARCH_TEXT} \
         characters"
    )]
    LongSearch,
    #[error("search {0:?} is neither a namespace nor a list of domains")]
    Search(String),
    #[error("ndots {0:?}: a number from 0 to {MAX_NDOTS} is accepted")]
    Ndots(String),
    #[error("format {0:?}: json and text are accepted")]
    Format(String),
    #[error("unknown parameter {0:?}: name, type, search, ndots and format are accepted")]
    Parameter(String),
    #[error("parameter {0} is given more than once")]
    Repeated(String),
}

/// The parameters of a request as text; an empty parameter is treated as a missing one.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct ExplainParameters {
    /// the name to explain, or an address
    #[arg(default_value = "")]
    pub(crate) name: String,
    /// the record type, such as A; by default A, AAAA and SRV, or PTR for an address
    #[arg(default_value = "")]
    pub(crate) qtype: String,
    /// the namespace of the pod that looks the name up, or the search domains in its resolv.conf,
    /// separated by commas
    #[arg(long, value_name = "string", default_value = "default")]
    pub(crate) search: String,
    /// the option ndots in the pod's resolv.conf, from 0 to 15
    #[arg(long, value_name = "int", default_value = "5")]
    pub(crate) ndots: String,
}

impl ExplainRequest {
    pub(crate) fn parse(parameters: &ExplainParameters) -> Result<Self, ExplainRequestError> {
        let text = &parameters.name;
        // The text is checked before it is parsed, so a pasted text has the same maximum length as
        // a name.
        check_characters(text)?;
        let meant = pasted::name_in_text(text);
        if meant.is_empty() && !text.is_empty() {
            return Err(ExplainRequestError::NoNameIn(shorten(text, 40)));
        }
        let name = parse_name(&meant)?;

        // The search list is not applied to reverse names.
        let is_reverse = reverse::is_reverse_name(&name.to_lowercase());
        let types = match parameters.qtype.as_str() {
            "" if is_reverse => vec![rtype::PTR],
            "" => DEFAULT_TYPES.to_vec(),
            qtype => vec![parse_type(qtype)?],
        };

        Ok(Self {
            absolute: is_reverse || meant.ends_with('.'),
            text: text.clone(),
            meant,
            name,
            types,
            search: RequestedSearch::parse(&parameters.search)?,
            ndots: parse_ndots(&parameters.ndots)?,
        })
    }
}

impl ExplainParameters {
    /// The request target of `GET /explain`, percent-encoded.
    pub(crate) fn request_target(&self) -> String {
        let Self {
            name,
            qtype,
            search,
            ndots,
        } = self;
        let parameters = [
            ("name", name.as_str()),
            ("type", qtype),
            ("search", search),
            ("ndots", ndots),
        ];
        request_target("/explain", &parameters)
    }
}

impl RequestedSearch {
    fn parse(text: &str) -> Result<Self, ExplainRequestError> {
        if text.len() > MAX_SEARCH_TEXT {
            return Err(ExplainRequestError::LongSearch);
        }

        let words: Vec<&str> = text
            .split(|c: char| c == ',' || c.is_ascii_whitespace())
            .filter(|word| !word.is_empty())
            .collect();
        match words.as_slice() {
            [] => Ok(Self::Namespace(NAMESPACE.to_owned())),
            [namespace] if !namespace.contains('.') && is_label(namespace) => {
                Ok(Self::Namespace((*namespace).to_owned()))
            }
            // A single word without dots that is not a label can only be a misspelt namespace.
            [word] if !word.contains('.') => Err(ExplainRequestError::Search((*word).to_owned())),
            words if words.len() > MAX_SEARCH_DOMAINS => Err(ExplainRequestError::LongSearch),
            words => words
                .iter()
                .map(|word| parse_domain(word))
                .collect::<Result<_, _>>()
                .map(Self::Domains),
        }
    }
}

fn parse_domain(text: &str) -> Result<Name, ExplainRequestError> {
    match Name::parse(text) {
        Ok(name) if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(name),
        _ => Err(ExplainRequestError::Search(text.to_owned())),
    }
}

fn parse_ndots(text: &str) -> Result<u8, ExplainRequestError> {
    if text.is_empty() {
        return Ok(NDOTS);
    }
    match text.parse() {
        Ok(ndots) if ndots <= MAX_NDOTS => Ok(ndots),
        _ => Err(ExplainRequestError::Ndots(shorten(text, 20))),
    }
}

fn check_characters(text: &str) -> Result<(), ExplainRequestError> {
    if text.len() > MAX_NAME {
        return Err(ExplainRequestError::LongName(text.len()));
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ExplainRequestError::Characters);
    }
    Ok(())
}

/// Parses a domain name; an address becomes its reverse name.
fn parse_name(text: &str) -> Result<Name, ExplainRequestError> {
    if text.is_empty() {
        return Err(ExplainRequestError::NoName);
    }
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(Name::parse(&reverse::name_of_address(address))?),
        Err(_) => Ok(Name::parse(text)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(
        name: &str,
        qtype: &str,
        search: &str,
    ) -> Result<ExplainRequest, ExplainRequestError> {
        let [name, qtype, search, ndots] = [name, qtype, search, ""].map(str::to_owned);
        ExplainRequest::parse(&ExplainParameters {
            name,
            qtype,
            search,
            ndots,
        })
    }

    #[test]
    fn names_and_addresses_become_queries() {
        let whole = "web.apps.svc.cluster.local.";
        let reverse = "1.0.96.10.IN-ADDR.arpa";
        let of_ipv6 = format!("a.1.{}d.f.ip6.arpa.", "0.".repeat(28));
        let usual = vec![1, 28, 33];
        for (text, name, absolute, types) in [
            ("web", "web.", false, usual.clone()),
            (whole, whole, true, usual),
            ("10.96.0.1", "1.0.96.10.in-addr.arpa.", true, vec![12]),
            (reverse, "1.0.96.10.IN-ADDR.arpa.", true, vec![12]),
            ("fd00::1a", &of_ipv6, true, vec![12]),
        ] {
            let request = request(text, "", "").unwrap();
            assert_eq!(request.name.to_string(), name);
            assert_eq!(request.absolute, absolute, "{text}");
            assert_eq!(request.types, types, "{text}");
        }
        assert_eq!(request("web", "srv", "").unwrap().types, [33]);
    }

    #[test]
    fn text_without_name_is_rejected() {
        let error = request("http://", "", "").unwrap_err();
        assert_eq!(error.to_string(), "\"http://\" contains no name");
        assert_eq!(request("", "", ""), Err(ExplainRequestError::NoName));
    }

    #[test]
    fn search_is_namespace_or_domains() {
        let search = |text| request("web", "", text).unwrap().search;
        assert_eq!(search(""), RequestedSearch::Namespace("default".to_owned()));
        assert_eq!(
            search("apps"),
            RequestedSearch::Namespace("apps".to_owned())
        );
        let domains = ["a.example", "b.example"].map(|domain| Name::parse(domain).unwrap());
        let domains = RequestedSearch::Domains(domains.into());
        for text in [
            "a.example b.example",
            "a.example,b.example",
            " a.example.\t b.example. ",
        ] {
            assert_eq!(search(text), domains, "{text}");
        }
        let root = Name::parse(".").unwrap();
        assert_eq!(search("."), RequestedSearch::Domains(vec![root]));
    }
}
