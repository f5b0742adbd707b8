//! Tests of command lines. A command line has the same meaning as for the Go binaries, except that
//! some stray words (words that are neither flags nor values) are rejected. The tests also compare
//! the texts of errors and of the help.

use clap::Parser;
use testkit::table;

use super::*;
use crate::klog::LogFlags;

#[derive(Debug, Parser, PartialEq)]
struct Small {
    #[arg(long, value_name = "int", default_value = "53", value_parser = int::<u16>, help = "a port.")]
    dns_port: u16,
    /// period
    #[arg(long, value_name = "duration", default_value = "10s")]
    config_period: GoDuration,
    /// specifies whether to enable profiling
    #[arg(long)]
    profiling: bool,
    /// on by default
    #[arg(long, action = clap::ArgAction::Set, default_value = "true")]
    keep: bool,
    /// a word
    #[arg(long, value_name = "string", default_value = "cluster.local.")]
    domain: String,
    /// camel
    #[arg(long = "configDir", value_name = "string", default_value = "")]
    config_dir: String,
    /// again and again
    #[arg(long, value_name = "string")]
    probe: Vec<String>,
}

#[derive(Debug, Parser)]
struct Logging {
    #[command(flatten)]
    log: LogFlags,
}

#[derive(Debug, Parser)]
struct Passing {
    /// restart
    #[arg(long = "restartDnsmasq")]
    restart_dnsmasq: bool,
    /// what follows `--`
    rest: Vec<OsString>,
}

fn argv(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn split_words(words: &str) -> Vec<OsString> {
    words.split(' ').map(OsString::from).collect()
}

fn small(words: &[&str]) -> Result<Small, Exit> {
    parse("kube-dns", Style::Pflag, argv(words))
}

#[test]
fn equivalent_spellings_are_parsed_alike() {
    let same = [
        "--dns-port=5353 --profiling --config-period=1m30s",
        "-dns-port=5353 -profiling -config-period=1m30s",
        "--dns_port 5353 --profiling=1 --config_period 1m30s",
        "-dns_port 0x14e9 -profiling=T --config-period 90s",
        "--dns-port=1 --profiling=false --dns-port=5353 --profiling=TRUE --config-period=1.5m",
        "--dns-port=5_353 --profiling --config-period=90000ms --",
    ];
    for words in same {
        let parsed = small(&words.split(' ').collect::<Vec<_>>());
        let options = parsed.unwrap_or_else(|exit| panic!("{words}: {exit:?}"));
        assert_eq!(options.dns_port, 5353, "{words}");
        assert!(options.profiling && options.keep, "{words}");
        let period = GoDuration::from_secs(90);
        assert_eq!(options.config_period, period, "{words}");
    }
}

#[test]
fn string_values_are_not_changed() {
    let options = small(&[
        "--domain=",
        "--configDir",
        "--a_b=c",
        "--probe=a,b",
        "--probe",
        "-x",
        "--keep=f",
    ])
    .unwrap();
    assert_eq!(options.domain, "");
    assert_eq!(options.config_dir, "--a_b=c");
    assert_eq!(options.probe, ["a,b", "-x"]);
    assert!(!options.keep);
}

#[test]
fn all_spellings_of_verbosity_are_parsed() {
    for words in [
        &["-v2"][..],
        &["-v=2"],
        &["-v", "2"],
        &["--v=2"],
        &["--v", "2"],
    ] {
        for style in [Style::Pflag, Style::Go] {
            let options: Logging = parse("kube-dns", style, argv(words)).unwrap();
            assert_eq!(options.log.v.0, 2, "{words:?} {style:?}");
        }
    }
}

#[test]
fn logging_flags_are_accepted() {
    let words = [
        "-logtostderr",
        "--logtostderr=true",
        "--alsologtostderr",
        "--stderrthreshold=INFO",
        "--vmodule=dns=3,tree*=4",
        "--log_dir=/tmp",
        "--log-file",
        "x",
        "--log_file_max_size=1",
        "--one_output",
        "--skip_headers=false",
        "--skip-log-headers",
        "--add_dir_header",
        "--log_backtrace_at=x.go:12",
        "--log-flush-frequency=5s",
        "--log_flush_frequency",
        "1s",
        "--log-format=json",
    ];
    for style in [Style::Pflag, Style::Go] {
        let options: Logging = parse("x", style, argv(&words)).unwrap();
        assert_eq!(options.log.log_format, crate::klog::LogFormat::Json);
    }
}

#[test]
fn words_after_dashes_stay_unchanged() {
    let options: Passing = parse(
        "dnsmasq-nanny",
        Style::Go,
        argv(&["-restartDnsmasq=true", "--", "-k", "--no_such=1", "--", "x"]),
    )
    .unwrap();
    assert!(options.restart_dnsmasq);
    assert_eq!(options.rest, ["-k", "--no_such=1", "--", "x"]);
}

#[test]
fn mistakes_have_error_texts_of_pflag() {
    const MISTAKES: &str = r#"
        --no-such-flag                | unknown flag: --no-such-flag
        extra-argument --no-such-flag | unknown flag: --no-such-flag
        --no-such-flag=1              | unknown flag: --no-such-flag
        -x                            | unknown shorthand flag: 'x' in -x
        --=1                          | bad flag syntax: --=1
        ---dns-port=1                 | bad flag syntax: ---dns-port=1
        --dns-port                    | flag needs an argument: --dns-port
        -v                            | flag needs an argument: 'v' in -v
        --dns-port=x                  | invalid argument "x" for "--dns-port" flag: strconv.ParseInt: parsing "x": invalid syntax
        --dns-port=70000              | invalid argument "70000" for "--dns-port" flag: strconv.ParseInt: parsing "70000": value out of range
        --config-period=10            | invalid argument "10" for "--config-period" flag: time: missing unit in duration "10"
        --v=x                         | invalid argument "x" for "-v, --v" flag: strconv.ParseInt: parsing "x": invalid syntax
        --profiling=x                 | invalid argument "x" for "--profiling" flag: strconv.ParseBool: parsing "x": invalid syntax
        --version=x                   | invalid argument "x" for "--version" flag: strconv.ParseBool: parsing "x": invalid syntax
    "#;
    for [words, text] in table::rows(MISTAKES) {
        let exit = parse::<Both>("kube-dns", Style::Pflag, split_words(words)).unwrap_err();
        assert_eq!(exit.stderr.lines().last(), Some(text), "{words}");
        assert_eq!((exit.status, exit.stdout.as_str()), (2, ""), "{words}");
    }
}

#[test]
fn mistakes_have_error_texts_of_go() {
    const MISTAKES: &str = r#"
        -no-such-flag    | flag provided but not defined: -no-such-flag
        --no-such-flag   | flag provided but not defined: -no-such-flag
        -config-period   | flag needs an argument: -config-period
        -config-period=5 | invalid value "5" for flag -config-period: parse error
        -dns-port=x      | invalid value "x" for flag -dns-port: parse error
        -dns-port=70000  | invalid value "70000" for flag -dns-port: value out of range
        -profiling=maybe | invalid boolean value "maybe" for -profiling: parse error
        -v=x             | invalid value "x" for flag -v: strconv.ParseInt: parsing "x": invalid syntax
    "#;
    for [words, text] in table::rows(MISTAKES) {
        let exit = parse::<Both>("dnsmasq-nanny", Style::Go, split_words(words)).unwrap_err();
        assert_eq!(exit.stderr.lines().next(), Some(text), "{words}");
        assert_eq!((exit.status, exit.stdout.as_str()), (2, ""), "{words}");
    }
}

#[derive(Debug, Parser)]
struct Both {
    #[command(flatten)]
    _small: Small,
    #[command(flatten)]
    _log: LogFlags,
}

#[test]
fn version_is_printed_if_requested_without_mistake() {
    let (version, commit) = (crate::version::VERSION, crate::version::COMMIT);
    let plain = format!("Kube-DNS {version}, kube-dns, commit {commit}\n");
    let raw = format!("\"{}\"\n", crate::version::VERSION);
    for (words, stdout) in [
        (&["--version"][..], &plain),
        (&["--version=true", "--dns-port=1"], &plain),
        (&["-version"], &plain),
        (&["--version=raw"], &raw),
    ] {
        let exit = small(words).unwrap_err();
        assert_eq!((exit.status, exit.stderr.as_str()), (0, ""), "{words:?}");
        assert_eq!(exit.stdout, *stdout, "{words:?}");
    }
    assert!(small(&["--version=false"]).is_ok());
    assert_eq!(small(&["--version", "--dns-port=x"]).unwrap_err().status, 2);
}

const NANNY: &str = "Manages the dnsmasq daemon, handles configuration given by the ConfigMap.
Any arguments given after \"--\" will be passed directly to dnsmasq itself.";

/// The nanny's flags, to compare the whole help text with the recorded text.
#[derive(Debug, Parser)]
#[command(long_about = NANNY)]
struct Nanny {
    /// location of the configuration
    #[arg(
        long = "configDir",
        value_name = "string",
        default_value = "/etc/k8s/dns/dnsmasq-nanny"
    )]
    _config_dir: String,
    /// location of the dnsmasq executable
    #[arg(
        long = "dnsmasqExec",
        value_name = "string",
        default_value = "/usr/sbin/dnsmasq"
    )]
    _dnsmasq_exec: String,
    /// local kubedns instance address for non-IP name resolution
    #[arg(
        long = "kubednsServer",
        value_name = "string",
        default_value = "127.0.0.1:10053"
    )]
    _kubedns_server: String,
    /// interval to send SIGUSR1 to dnsmasq which triggers statistics logging (if zero, SIGUSR1 is
    /// not sent)
    #[arg(long = "logInterval", value_name = "duration", default_value = "0s")]
    _log_interval: GoDuration,
    /// if true, restart dnsmasq when the configuration changes
    #[arg(long = "restartDnsmasq")]
    _restart_dnsmasq: bool,
    /// interval to check for configuration updates
    #[arg(long = "syncInterval", value_name = "duration", default_value = "10s")]
    _sync_interval: GoDuration,
    #[command(flatten)]
    _log: LogFlags,
    /// what follows `--`
    _rest: Vec<OsString>,
}

#[test]
fn go_help_has_layout_of_go() {
    let exit = parse::<Nanny>("dnsmasq-nanny", Style::Go, argv(&["--help"])).unwrap_err();
    assert_eq!((exit.status, exit.stdout.as_str()), (0, ""));
    let captured = include_str!("../../tests/data/dnsmasq-nanny-help.txt");
    let captured = captured
        .strip_prefix("$ dnsmasq-nanny --help\n--- stderr\n")
        .unwrap();
    let captured = captured.strip_suffix("--- exit status 0\n").unwrap();
    // The recorded help lacks these flags. Each of them has two lines in our help.
    let mut lines: Vec<&str> = exit.stderr.lines().collect();
    for new in [
        "  -log-flush-frequency duration",
        "  -log-format string",
        "  -version",
    ] {
        let at = lines.iter().position(|line| *line == new).unwrap();
        lines.drain(at..at + 2);
    }
    // Our help text of -vmodule comes from a newer klog than the recorded text, and ends with these
    // words.
    let newer = " (only works for the default text log format)";
    let lines: Vec<&str> = lines
        .iter()
        .map(|line| line.strip_suffix(newer).unwrap_or(line))
        .collect();
    assert_eq!(lines, captured.lines().collect::<Vec<_>>());
}

#[test]
fn parse_rejects_stray_words() {
    let exit = small(&["--dns-port=1", "stray", "words"]).unwrap_err();
    let stderr = "Usage of kube-dns: see kube-dns --help\nunexpected word \"stray\": kube-dns accepts only flags\n";
    assert_eq!((exit.status, exit.stderr.as_str()), (2, stderr));
}

#[test]
fn parse_program_ignores_stray_words_after_first_word() {
    let none: &[&str] = &[];
    let pflag: [(&[&str], &[&str]); 6] = [
        (&["--dns-port=1"], none),
        (&["--profiling", "false", "--dns-port=1"], &["false"]),
        (&["--dns-port=1", "domain=a", "-"], &["domain=a", "-"]),
        (&["--dns-port=1", "--", "a", "--b"], &["a", "--b"]),
        (&["", "--dns-port=1"], &[""]),
        (&["--", "a", "--dns-port=2"], &["a", "--dns-port=2"]),
    ];
    for (words, ignored) in pflag {
        let parsed = parse_program::<Small>("kube-dns", Style::Pflag, &["explain"], argv(words));
        assert_eq!(parsed.unwrap().ignored, ignored, "{words:?}");
    }

    // Go's flag package reads no flags after the first stray word, and the nanny passes on what
    // follows `--`.
    let words = [
        "-restartDnsmasq",
        "false",
        "-no-such-flag",
        "--",
        "-k",
        "tap",
    ];
    let nanny =
        parse_program::<Passing>("dnsmasq-nanny", Style::Go, &["tap"], argv(&words)).unwrap();
    assert!(nanny.options.restart_dnsmasq);
    assert_eq!(nanny.options.rest, ["-k", "tap"]);
    assert_eq!(nanny.ignored, ["false", "-no-such-flag"]);

    // A stray first word is rejected, because it may be a misspelt subcommand. An empty first word
    // is ignored.
    let words = argv(&["dnsmasq", "--", "-k"]);
    let exit =
        parse_program::<Passing>("dnsmasq-nanny", Style::Go, &["tap", "top"], words).unwrap_err();
    let hint =
        "dnsmasq-nanny accepts only flags and words after --, or one of tap, top as the first word";
    assert!(exit.stderr.contains(hint), "{}", exit.stderr);
}

#[test]
fn unknown_or_misplaced_subcommand_is_rejected() {
    let similar = "did you mean explain?";
    let first = "explain must be the first word";
    let neither = "kube-dns accepts only flags, or one of explain, tap, top as the first word";
    for (words, hint) in [
        (&["explian", "web"][..], similar),
        (&["explian", "--dns-port=1"], similar),
        (&["tpo"], "did you mean top?"),
        (&["resolve"], neither),
        (&["--dns-port=1", "explain", "web"], first),
    ] {
        let subcommands = ["explain", "tap", "top"];
        let exit = parse_program::<Small>("kube-dns", Style::Pflag, &subcommands, argv(words))
            .unwrap_err();
        let word = words.iter().find(|word| !word.starts_with('-')).unwrap();
        let stderr =
            format!("Usage of kube-dns: see kube-dns --help\nunexpected word {word:?}: {hint}\n");
        assert_eq!((exit.status, exit.stderr), (2, stderr), "{words:?}");
    }
}

#[test]
fn pflag_help_has_layout_of_pflag() {
    for word in ["--help", "-h", "-help"] {
        let exit =
            parse::<Both>("kube-dns", Style::Pflag, argv(&["--dns-port=x", word])).unwrap_err();
        assert_eq!((exit.status, exit.stdout.as_str()), (0, ""), "{word}");
    }
    let exit = small(&["--help"]).unwrap_err();
    let expected = "Usage of kube-dns:
      --config-period duration   period (default 10s)
      --configDir string         camel
      --dns-port int             a port. (default 53)
      --domain string            a word (default \"cluster.local.\")
      --keep                     on by default (default true)
      --probe string             again and again (default \"[]\")
      --profiling                specifies whether to enable profiling
      --version version[=true]   Print version information and quit
";
    assert_eq!(exit.stderr, expected);
}

proptest::proptest! {
    #[test]
    fn no_command_line_panics(
        words in proptest::collection::vec("-{0,3}[a-zA-Z_-]{0,12}(=\\PC{0,8})?|--?(v|dns[-_]port|profiling|configDir|probe|version|log_dir)(=[0-9a-z]{0,4})?|\\PC{0,10}", 0..8),
    ) {
        for style in [Style::Pflag, Style::Go] {
            let argv = || words.iter().map(OsString::from);
            for exit in [
                parse::<Small>("x", style, argv()).err(),
                parse::<Both>("x", style, argv()).err(),
                parse::<Nanny>("x", style, argv()).err(),
            ].into_iter().flatten() {
                // `--help` and `--version` end with status 0. After a mistake, stderr has two
                // lines: the error and a hint.
                let mistake = exit.status == 2;
                proptest::prop_assert!(mistake || exit.status == 0);
                proptest::prop_assert!(!mistake || exit.stderr.lines().count() == 2, "{:?}", exit.stderr);
            }
        }
    }

    #[test]
    fn words_after_dashes_are_positional(words in proptest::collection::vec("\\PC{0,10}|-[a-z-]{1,8}", 0..8)) {
        let argv = ["-restartDnsmasq", "--"].into_iter().map(OsString::from).chain(words.iter().map(OsString::from));
        let options: Passing = parse("x", Style::Go, argv).unwrap();
        proptest::prop_assert_eq!(options.rest, words.iter().map(OsString::from).collect::<Vec<_>>());
    }
}
