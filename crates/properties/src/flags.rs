//! Command lines of the three binaries.

use std::ffi::OsString;
use std::fmt::Debug;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use clap::Parser;
use daemon::flags::{GoDuration, Style, atoi, boolean, int, parse, quote};
use nanny::config::arguments::DnsmasqArguments;

/// Any command line is parsed, or answered with the help, the version or an error. `_` means the
/// same as `-` in the name of a flag. Values stay the same when they are printed and parsed again.
pub fn flags(input: &[u8]) {
    let Some((program, words)) = input.split_first() else {
        return;
    };
    let words = words
        .split(|octet| *octet == b'\n')
        .map(|word| OsString::from_vec(word.to_vec()));
    let words: Vec<OsString> = words.collect();
    for word in &words {
        value(&word.to_string_lossy());
    }
    match program % 3 {
        0 => drop(read::<kubedns::options::Options>(
            "kube-dns",
            Style::Pflag,
            &words,
        )),
        1 => drop(read::<sidecar::Options>("sidecar", Style::Pflag, &words)),
        _ => {
            if let Some(flags) = read::<nanny::flags::Flags>("dnsmasq-nanny", Style::Go, &words) {
                dnsmasq(&flags.dnsmasq);
            }
        }
    }
}

fn read<P: Parser + Debug>(program: &str, style: Style, argv: &[OsString]) -> Option<P> {
    let renamed: Vec<OsString> = argv.iter().map(renamed).collect();
    match parse::<P>(program, style, argv.to_vec()) {
        Ok(options) => {
            // A word without `=` may be the value of the word before. So only command lines in
            // which every word has the form `-name=value` are compared.
            let flag = |word: &OsString| {
                word.as_bytes().starts_with(b"-") && word.as_bytes().contains(&b'=')
            };
            if argv.iter().all(flag) {
                let again = parse::<P>(program, style, renamed.clone())
                    .map(|options| format!("{options:?}"));
                assert_eq!(
                    again,
                    Ok(format!("{options:?}")),
                    "{argv:?} and {renamed:?}"
                );
            }
            Some(options)
        }
        Err(exit) => {
            assert!(
                matches!(exit.status, 0 | 2),
                "the exit status is {}",
                exit.status
            );
            assert!(
                exit.stdout.is_empty() != exit.stderr.is_empty(),
                "the text must be on exactly one of stdout and stderr: {exit:?}"
            );
            None
        }
    }
}

/// Replaces each `-` within the name of a flag by `_`. The leading dashes and the value stay.
fn renamed(word: &OsString) -> OsString {
    let octets = word.as_bytes();
    let start = octets
        .iter()
        .position(|octet| *octet != b'-')
        .unwrap_or(octets.len());
    let end = octets
        .iter()
        .position(|octet| *octet == b'=')
        .unwrap_or(octets.len());
    let mut octets = octets.to_vec();
    if start > 0 {
        let name = octets.get_mut(start..end).unwrap_or_default();
        name.iter_mut()
            .filter(|octet| **octet == b'-')
            .for_each(|octet| *octet = b'_');
    }
    OsString::from_vec(octets)
}

/// Parses the text after the last `=` as a duration, a number, a boolean and a domain. Checks that
/// a valid value stays the same when it is printed and parsed again, and that [`quote`] leaves no
/// control character.
fn value(text: &str) {
    let text = text.rsplit('=').next().unwrap_or(text);
    if let Ok(duration) = text.parse::<GoDuration>() {
        assert_eq!(duration.to_string().parse(), Ok(duration), "{text:?}");
    }
    if let Ok(number) = int::<i64>(text) {
        assert_eq!(int(&number.to_string()), Ok(number), "{text:?}");
        assert_eq!(
            int::<u16>(text).ok(),
            u16::try_from(number).ok(),
            "{text:?}"
        );
    }
    if let Ok(number) = atoi(text) {
        assert_eq!(atoi(&number.to_string()), Ok(number), "{text:?}");
    }
    if let Ok(truth) = boolean(text) {
        assert_eq!(boolean(&truth.to_string()), Ok(truth), "{text:?}");
    }
    if let Ok(domain) = text.parse::<kubedns::options::Domain>() {
        assert_eq!(domain.to_string().parse(), Ok(domain), "{text:?}");
    }
    let quoted = quote(text);
    assert!(!quoted.contains(char::is_control), "{quoted:?}");
}

/// Checks that the nanny passes the arguments of dnsmasq on unchanged, and that reading options
/// from them causes no panic.
fn dnsmasq(words: &[OsString]) {
    let arguments = DnsmasqArguments::from_words(words.to_vec());
    let passed_on = arguments.words();
    assert_eq!(
        passed_on, words,
        "the arguments must be passed on unchanged"
    );
    let _ = (
        arguments.port(),
        arguments.listen_addresses(),
        arguments.probe_address(),
        arguments.resolv_files(),
    );
    if let Some(server) = arguments.probe_address() {
        for domain in arguments.domains_routed_to(server) {
            assert!(!domain.contains('/'), "{domain:?}");
        }
    }
}
