//! The request for an explanation. Each parse error is one line.

mod pasted;

use std::net::IpAddr;

use wire::Name;
use wire::mnemonic::{UnknownType, parse_type};
use wire::rfc1123::is_label;
use wire::shorten;
use wire::{reverse, rtype};

/// Bound of the name, in octets.
const MAX_NAME: usize = 255;
/// Bounds of the search list: octets and domains. Kubernetes has the same limits.
const MAX_SEARCH: (usize, usize) = (2048, 32);
/// Default of `ndots`, as in the resolv.conf of a pod.
const NDOTS: u8 = 5;
/// The highest `ndots` that resolvers accept.
const MAX_NDOTS: u8 = 15;
/// The namespace of the pod that queries the name, unless the request names one.
const NAMESPACE: &str = "default";

/// A parsed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// The name as given, before parsing.
    pub(crate) text: String,
    /// The name without the URL, port or `svc/` around it.
    pub(crate) meant: String,
    /// The domain name to explain; for an address, its reverse name.
    pub(crate) name: Name,
    /// Whether the resolver applies no search list: for reverse names, and names with a dot at the
    /// end.
    pub(crate) absolute: bool,
    /// The record types in the order of the queries.
    pub(crate) types: Vec<u16>,
    pub(crate) search: Search,
    /// For names with fewer dots, the resolver tries the search list first.
    pub(crate) ndots: u8,
}

/// A search list: of a pod in the namespace, or explicit domains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Search {
    Namespace(String),
    Domains(Vec<Name>),
}

/// Invalid request; the message is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    #[error(
        "no name: /explain?name=NAME, optionally with &type=TYPE, &search=NAMESPACE, &ndots=5, &format=text"
    )]
    NoName,
    #[error("the name has {0} characters, and a name has at most {MAX_NAME}")]
    LongName(usize),
    #[error("not a domain name: {0}")]
    Name(#[from] wire::name::NameError),
    #[error(
        "not a domain name: only visible ASCII characters without spaces are accepted, and other letters in the form xn--..."
    )]
    Characters,
    #[error(transparent)]
    Type(#[from] UnknownType),
    #[error("the search list is too long: at most {domains} domains and {characters} characters", characters = MAX_SEARCH.0, domains = MAX_SEARCH.1)]
    LongSearch,
    #[error("search {0:?}: neither a namespace nor a list of domains")]
    Search(String),
    #[error("ndots {0:?}: a number from 0 to {MAX_NDOTS} is accepted")]
    Ndots(String),
    #[error("format {0:?}: json and text are accepted")]
    Format(String),
    #[error("unknown parameter {0:?}: name, type, search, ndots and format are accepted")]
    Parameter(String),
    #[error("{0} is given more than once")]
    Repeated(String),
}

/// The parameters of a request as text; an empty parameter counts as missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct Parameters {
    /// the name
    #[arg(default_value = "")]
    pub(crate) name: String,
    /// the record type
    #[arg(default_value = "")]
    pub(crate) qtype: String,
    /// the namespace of the pod that looks the name up, or the search list of its resolv.conf,
    /// separated by commas
    #[arg(long, value_name = "string", default_value = "default")]
    pub(crate) search: String,
    /// options ndots of the pod's resolv.conf
    #[arg(long, value_name = "int", default_value = "5")]
    pub(crate) ndots: String,
}

impl Request {
    pub(crate) fn new(parameters: &Parameters) -> Result<Self, RequestError> {
        let Parameters {
            name: text,
            qtype,
            search,
            ndots,
        } = parameters;
        check(text)?;
        let meant = pasted::name(text);
        let name = name(&meant)?;
        let reverse = is_reverse(&name);
        let types = match qtype.as_str() {
            "" if reverse => vec![rtype::PTR],
            "" => vec![rtype::A, rtype::AAAA, rtype::SRV],
            text => vec![parse_type(text)?],
        };
        Ok(Self {
            absolute: reverse || meant.ends_with('.'),
            text: text.clone(),
            meant,
            name,
            types,
            search: Search::parse(search)?,
            ndots: parse_ndots(ndots)?,
        })
    }
}

impl Search {
    fn parse(text: &str) -> Result<Self, RequestError> {
        if text.len() > MAX_SEARCH.0 {
            return Err(RequestError::LongSearch);
        }
        let separator = |c: char| c == ',' || c.is_ascii_whitespace();
        let words: Vec<&str> = text
            .split(separator)
            .filter(|word| !word.is_empty())
            .collect();
        match words.as_slice() {
            [] => Ok(Self::Namespace(NAMESPACE.to_owned())),
            [namespace] if !namespace.contains('.') && is_label(namespace) => {
                Ok(Self::Namespace((*namespace).to_owned()))
            }
            [word] if !word.contains('.') => Err(RequestError::Search((*word).to_owned())),
            words if words.len() > MAX_SEARCH.1 => Err(RequestError::LongSearch),
            words => words
                .iter()
                .map(|word| domain(word))
                .collect::<Result<_, _>>()
                .map(Self::Domains),
        }
    }
}

fn domain(text: &str) -> Result<Name, RequestError> {
    match Name::parse(text) {
        Ok(name) if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(name),
        _ => Err(RequestError::Search(text.to_owned())),
    }
}

fn parse_ndots(text: &str) -> Result<u8, RequestError> {
    match text {
        "" => Ok(NDOTS),
        text => match text.parse() {
            Ok(ndots) if ndots <= MAX_NDOTS => Ok(ndots),
            _ => Err(RequestError::Ndots(shorten(text, 20))),
        },
    }
}

fn check(text: &str) -> Result<(), RequestError> {
    if text.len() > MAX_NAME {
        return Err(RequestError::LongName(text.chars().count()));
    }
    let is_graphic = text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_graphic {
        Ok(())
    } else {
        Err(RequestError::Characters)
    }
}

/// Parses a domain name; an address becomes its reverse name.
fn name(text: &str) -> Result<Name, RequestError> {
    if text.is_empty() {
        return Err(RequestError::NoName);
    }
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(Name::parse(&reverse::name_of_address(address))?),
        Err(_) => Ok(Name::parse(text)?),
    }
}

/// Whether the name is a reverse name. The search list is not applied to reverse names.
fn is_reverse(name: &Name) -> bool {
    let lower = name.to_lowercase();
    reverse::reverse_trees().any(|tree| lower.is_within(&tree))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str, qtype: &str, search: &str) -> Result<Request, RequestError> {
        let [name, qtype, search, ndots] = [name, qtype, search, ""].map(str::to_owned);
        Request::new(&Parameters {
            name,
            qtype,
            search,
            ndots,
        })
    }

    #[test]
    fn names_and_addresses() {
        for (text, name, absolute, types) in [
            ("web", "web.", false, vec![1, 28, 33]),
            (
                "web.apps.svc.cluster.local.",
                "web.apps.svc.cluster.local.",
                true,
                vec![1, 28, 33],
            ),
            ("10.96.0.1", "1.0.96.10.in-addr.arpa.", true, vec![12]),
            (
                "1.0.96.10.IN-ADDR.arpa",
                "1.0.96.10.IN-ADDR.arpa.",
                true,
                vec![12],
            ),
            (
                "fd00::1a",
                &format!("a.1.{}d.f.ip6.arpa.", "0.".repeat(28)),
                true,
                vec![12],
            ),
        ] {
            let request = request(text, "", "").unwrap();
            assert_eq!(request.name.to_string(), name);
            assert_eq!(
                (request.absolute, request.types),
                (absolute, types),
                "{text}"
            );
        }
        assert_eq!(request("web", "srv", "").unwrap().types, [33]);
    }

    #[test]
    fn search_lists() {
        let search = |text| request("web", "", text).unwrap().search;
        assert_eq!(search(""), Search::Namespace("default".to_owned()));
        assert_eq!(search("apps"), Search::Namespace("apps".to_owned()));
        for text in [
            "a.example b.example",
            "a.example,b.example",
            " a.example.\t b.example. ",
        ] {
            let Search::Domains(domains) = search(text) else {
                panic!("{text}")
            };
            let domains: Vec<String> = domains.iter().map(ToString::to_string).collect();
            assert_eq!(domains, ["a.example.", "b.example."], "{text}");
        }
        let Search::Domains(root) = search(".") else {
            panic!("the root is a domain")
        };
        assert_eq!(root[0].to_string(), ".");
    }
}
