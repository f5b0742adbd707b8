//! What is asked of an explanation: parsed once, with a line for every mistake.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dnsconfig::name::is_label;
use skydns::Name;
use skydns::wire::rtype;

use crate::types::{self, UnknownType};

/// The longest name that is looked at, in characters.
const MAX_NAME: usize = 255;
/// The longest search list, in characters, and the most domains it has: what Kubernetes allows a pod.
const MAX_SEARCH: (usize, usize) = (2048, 32);
/// `options ndots` of a pod's resolv.conf.
const NDOTS: u8 = 5;
/// The most that resolvers take for `ndots`.
const MAX_NDOTS: u8 = 15;
/// Whose search list is assumed when none is given.
const NAMESPACE: &str = "default";

/// A question about a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What was typed.
    pub(crate) text: String,
    /// The same as a name. An address has become its reverse name.
    pub(crate) name: Name,
    /// No search list is applied.
    pub(crate) absolute: bool,
    /// The record types, in the order they are asked for.
    pub(crate) types: Vec<u16>,
    /// The search list.
    pub(crate) search: Search,
    /// Names with fewer dots are looked for in the search list first.
    pub(crate) ndots: u8,
}

/// Where a search list comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Search {
    /// It is that of a pod in this namespace.
    Namespace(String),
    /// It was given.
    Domains(Vec<Name>),
}

/// Why a question is none. One line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No name.
    #[error(
        "no name: /explain?name=NAME, and if you like &type=TYPE, &search=NAMESPACE, &ndots=5, &format=text"
    )]
    NoName,
    /// Too much of a name.
    #[error("the name has {0} characters, and a name has at most {MAX_NAME}")]
    LongName(usize),
    /// Not a domain name.
    #[error("not a domain name: {0}")]
    Name(#[from] skydns::name::NameError),
    /// Characters that a domain name is not typed with.
    #[error(
        "not a domain name: only visible ASCII characters without spaces are accepted, and other letters in the form xn--..."
    )]
    Characters,
    /// A URL was pasted.
    #[error("not a domain name but a URL: the name in it is {0:?}")]
    Url(String),
    /// Not a record type.
    #[error(transparent)]
    Type(#[from] UnknownType),
    /// Too much of a search list.
    #[error("the search list is too long: at most {domains} domains and {characters} characters", characters = MAX_SEARCH.0, domains = MAX_SEARCH.1)]
    LongSearch,
    /// Neither a namespace nor domains.
    #[error("search {0:?}: neither a namespace nor a list of domains")]
    Search(String),
    /// Not a number of dots.
    #[error("ndots {0:?}: a number from 0 to {MAX_NDOTS} is accepted")]
    Ndots(String),
    /// Not a format.
    #[error("format {0:?}: json and text are accepted")]
    Format(String),
    /// Not a parameter.
    #[error("unknown parameter {0:?}: name, type, search, ndots and format are accepted")]
    Parameter(String),
}

/// The parameters of a question as text; empty ones are as good as none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters {
    /// `name`
    pub name: String,
    /// `type`
    pub qtype: String,
    /// `search`
    pub search: String,
    /// `ndots`
    pub ndots: String,
}

impl Request {
    /// Reads a question.
    ///
    /// # Errors
    ///
    /// When a parameter makes no sense.
    pub fn new(parameters: &Parameters) -> Result<Self, RequestError> {
        let Parameters { name: text, qtype, search, ndots } = parameters;
        let (name, address) = name(text)?;
        let reverse = address.is_some() || is_reverse(&name);
        let types = match qtype.as_str() {
            "" if reverse => vec![rtype::PTR],
            "" => vec![rtype::A, rtype::AAAA, rtype::SRV],
            text => vec![types::parse(text)?],
        };
        Ok(Self {
            absolute: reverse || text.ends_with('.'),
            text: text.clone(),
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
        let words: Vec<&str> = text.split(separator).filter(|word| !word.is_empty()).collect();
        match words.as_slice() {
            [] => Ok(Self::Namespace(NAMESPACE.to_owned())),
            [namespace] if !namespace.contains('.') && is_label(namespace) => {
                Ok(Self::Namespace((*namespace).to_owned()))
            }
            [word] if !word.contains('.') => Err(RequestError::Search((*word).to_owned())),
            words if words.len() > MAX_SEARCH.1 => Err(RequestError::LongSearch),
            words => words.iter().map(|word| domain(word)).collect::<Result<_, _>>().map(Self::Domains),
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
            _ => Err(RequestError::Ndots(text.chars().take(20).collect())),
        },
    }
}

/// The name that is meant, and the address if one was typed.
fn name(text: &str) -> Result<(Name, Option<IpAddr>), RequestError> {
    match text.len() {
        0 => return Err(RequestError::NoName),
        1..=MAX_NAME => {}
        _ => return Err(RequestError::LongName(text.chars().count())),
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(RequestError::Characters);
    }
    if let Some((_, rest)) = text.split_once("://") {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        let name =
            host.rsplit_once(':').filter(|(_, port)| !port.contains(']')).map_or(host, |(name, _)| name);
        return Err(RequestError::Url(name.to_owned()));
    }
    match text.parse() {
        Ok(address) => Ok((Name::parse(&reverse_name(address))?, Some(address))),
        Err(_) => Ok((Name::parse(text)?, None)),
    }
}

fn reverse_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa.")
        }
        IpAddr::V6(ip) => {
            let digits = ip.octets().into_iter().rev().flat_map(|octet| [octet & 0xf, octet >> 4]);
            let label = |digit: u8| [char::from_digit(digit.into(), 16).unwrap_or_default(), '.'];
            let digits: String = digits.flat_map(label).collect();
            format!("{digits}ip6.arpa.")
        }
    }
}

/// Resolvers never apply a search list to reverse names.
fn is_reverse(name: &Name) -> bool {
    let lower = name.to_lowercase();
    lower.wire().ends_with(b"\x07in-addr\x04arpa\x00") || lower.wire().ends_with(b"\x03ip6\x04arpa\x00")
}

/// The address whose reverse name has these labels.
pub(crate) fn reverse_address(labels: &[&str]) -> Option<IpAddr> {
    match labels {
        [d, c, b, a, "in-addr", "arpa"] => {
            let octet = |label: &str| label.parse::<u8>().ok().filter(|octet| octet.to_string() == label);
            Some(Ipv4Addr::new(octet(a)?, octet(b)?, octet(c)?, octet(d)?).into())
        }
        [digits @ .., "ip6", "arpa"] if digits.len() == 32 => {
            let mut address = 0_u128;
            for label in digits.iter().rev() {
                let digit = u128::from_str_radix(label, 16).ok().filter(|_| label.len() == 1)?;
                address = address << 4 | digit;
            }
            Some(Ipv6Addr::from(address).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str, qtype: &str, search: &str) -> Result<Request, RequestError> {
        Request::new(&Parameters {
            name: name.to_owned(),
            qtype: qtype.to_owned(),
            search: search.to_owned(),
            ndots: String::new(),
        })
    }

    #[test]
    fn names_and_addresses() {
        for (text, name, absolute, types) in [
            ("web", "web.", false, vec![1, 28, 33]),
            ("web.apps.svc.cluster.local.", "web.apps.svc.cluster.local.", true, vec![1, 28, 33]),
            ("10.96.0.1", "1.0.96.10.in-addr.arpa.", true, vec![12]),
            ("1.0.96.10.IN-ADDR.arpa", "1.0.96.10.IN-ADDR.arpa.", true, vec![12]),
            (
                "fd00::1a",
                "a.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.",
                true,
                vec![12],
            ),
        ] {
            let request = request(text, "", "").unwrap();
            assert_eq!(request.name.to_string(), name);
            assert_eq!((request.absolute, request.types), (absolute, types), "{text}");
        }
        assert_eq!(request("web", "srv", "").unwrap().types, [33]);
    }

    #[test]
    fn reverse_names_and_back() {
        for text in ["10.96.0.1", "0.0.0.0", "fd00::1a", "2001:db8:1:2:3:4:5:6"] {
            let address: IpAddr = text.parse().unwrap();
            let name = reverse_name(address);
            let labels: Vec<&str> = name.trim_end_matches('.').split('.').collect();
            assert_eq!(reverse_address(&labels), Some(address), "{text}");
        }
        for text in ["1.2.3.in-addr.arpa", "01.2.3.4.in-addr.arpa", "+1.2.3.4.in-addr.arpa", "1.ip6.arpa"] {
            assert_eq!(reverse_address(&text.split('.').collect::<Vec<_>>()), None, "{text}");
        }
    }

    #[test]
    fn search_lists() {
        let search = |text| request("web", "", text).unwrap().search;
        assert_eq!(search(""), Search::Namespace("default".to_owned()));
        assert_eq!(search("apps"), Search::Namespace("apps".to_owned()));
        for text in ["a.example b.example", "a.example,b.example", " a.example.\t b.example. "] {
            let Search::Domains(domains) = search(text) else { panic!("{text}") };
            let domains: Vec<String> = domains.iter().map(ToString::to_string).collect();
            assert_eq!(domains, ["a.example.", "b.example."], "{text}");
        }
        let Search::Domains(root) = search(".") else { panic!("the root is a domain") };
        assert_eq!(root[0].to_string(), ".");
    }

    #[test]
    fn mistakes_have_a_line_each() {
        let long = "a.".repeat(140);
        for (name, qtype, search, line) in [
            ("", "", "", "no name: /explain?name=NAME, and if you like"),
            (&*long, "", "", "the name has 280 characters, and a name has at most 255"),
            ("a..b", "", "", "not a domain name: empty label in \"a..b\""),
            (&"a".repeat(64), "", "", "not a domain name: label of more than 63 octets"),
            ("a b", "", "", "not a domain name: only visible ASCII characters"),
            ("bücher.example", "", "", "not a domain name: only visible ASCII characters"),
            ("http://web.apps:80/x", "", "", "not a domain name but a URL: the name in it is \"web.apps\""),
            (
                "postgres://u:p@db.apps/x",
                "",
                "",
                "not a domain name but a URL: the name in it is \"db.apps\"",
            ),
            ("http://[::1]:80", "", "", "not a domain name but a URL: the name in it is \"[::1]\""),
            ("://", "", "", "not a domain name but a URL: the name in it is \"\""),
            ("web", "ADDRESS", "", "unknown type \"ADDRESS\": A, AAAA, SRV"),
            ("web", "", "Not_A_Namespace", "search \"Not_A_Namespace\": neither a namespace nor"),
            ("web", "", "a..b c", "search \"a..b\": neither a namespace nor"),
            ("web", "", &"a.b ".repeat(33), "the search list is too long: at most 32 domains"),
            ("web", "", &"a.b ".repeat(3300), "the search list is too long: at most 32 domains"),
        ] {
            let error = request(name, qtype, search).unwrap_err().to_string();
            assert!(error.starts_with(line), "{error}");
            assert!(!error.contains('\n'));
        }
        for ndots in ["-1", "16", "many"] {
            let parameters =
                Parameters { name: "web".to_owned(), ndots: ndots.to_owned(), ..Parameters::default() };
            let error = Request::new(&parameters).unwrap_err().to_string();
            assert_eq!(error, format!("ndots {ndots:?}: a number from 0 to 15 is accepted"));
        }
    }
}
