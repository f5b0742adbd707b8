//! Command lines as people write them, against what the Go binaries make of them.

use clap::Parser;

use super::*;
use crate::klog::LogFlags;

#[derive(Debug, Parser, PartialEq)]
struct Small {
    /// port on which to serve DNS requests.
    #[arg(long, value_name = "int", default_value = "53", value_parser = int::<u16>)]
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
    #[arg(long, default_value = "cluster.local.")]
    domain: String,
    /// camel
    #[arg(long = "configDir", default_value = "")]
    config_dir: String,
    /// again and again
    #[arg(long)]
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

fn small(words: &[&str]) -> Result<Small, Exit> {
    parse("kube-dns", Style::Pflag, argv(words))
}

#[test]
fn dialects_of_one_command_line() {
    let same: [&[&str]; 6] = [
        &["--dns-port=5353", "--profiling", "--config-period=1m30s"],
        &["-dns-port=5353", "-profiling", "-config-period=1m30s"],
        &["--dns_port", "5353", "--profiling=1", "--config_period", "1m30s"],
        &["-dns_port", "0x14e9", "-profiling=T", "--config-period", "90s"],
        &["--dns-port=1", "--profiling=false", "--dns-port=5353", "--profiling=TRUE", "--config-period=1.5m"],
        &[
            "stray",
            "--dns-port=5_353",
            "word",
            "--profiling",
            "--config-period=90000ms",
            "--",
            "--no-such-flag",
        ],
    ];
    for words in same {
        let options = small(words).unwrap_or_else(|exit| panic!("{words:?}: {exit:?}"));
        assert_eq!(options.dns_port, 5353, "{words:?}");
        assert!(options.profiling, "{words:?}");
        assert_eq!(options.config_period, GoDuration::from_secs(90), "{words:?}");
        assert!(options.keep, "{words:?}");
    }
}

#[test]
fn values_are_left_as_they_are() {
    let options =
        small(&["--domain=", "--configDir", "--a_b=c", "--probe=a,b", "--probe", "-x", "--keep=f"]).unwrap();
    assert_eq!(options.domain, "");
    assert_eq!(options.config_dir, "--a_b=c");
    assert_eq!(options.probe, ["a,b", "-x"]);
    assert!(!options.keep);
}

#[test]
fn verbosity_in_all_spellings() {
    for words in [&["-v2"][..], &["-v=2"], &["-v", "2"], &["--v=2"], &["--v", "2"]] {
        for style in [Style::Pflag, Style::Go] {
            let options: Logging = parse("kube-dns", style, argv(words)).unwrap();
            assert_eq!(options.log.v.0, 2, "{words:?} {style:?}");
        }
    }
}

#[test]
fn old_logging_flags_are_accepted() {
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
        assert_eq!(options.log.log_format, crate::klog::Format::Json);
    }
}

#[test]
fn what_follows_two_dashes_is_untouched() {
    let options: Passing = parse(
        "dnsmasq-nanny",
        Style::Go,
        argv(&["-restartDnsmasq=true", "--", "-k", "--no_such=1", "--", "x"]),
    )
    .unwrap();
    assert!(options.restart_dnsmasq);
    assert_eq!(options.rest, ["-k", "--no_such=1", "--", "x"]);
}
