use daemon::flags::{Exit, Style, parse};
use wire::Name;

use super::*;

fn options(words: &[&str]) -> Result<Options, Exit> {
    parse(
        "kube-dns",
        Style::Pflag,
        words.iter().map(std::ffi::OsString::from),
    )
}

#[test]
fn options_have_defaults_without_flags() {
    let options = options(&[]).unwrap();
    assert_eq!(options.domain.first.as_str(), "cluster.local.");
    assert_eq!((options.dns_port, options.healthz_port), (53, 8081));
    assert_eq!(options.dns_bind_address, "0.0.0.0");
    assert_eq!(options.initial_sync_timeout, GoDuration::from_secs(60));
    assert_eq!(options.config_period.duration(), Duration::from_secs(10));
    assert_eq!(options.config_from(), Ok(ConfigFrom::Flags));
    assert_eq!(options.snapshot_dir(), None);
    assert_eq!(options.endpoints_source, EndpointsChoice::Auto);
    let access = options.access().unwrap();
    assert!(access.kubeconfig.is_none() && access.master_url.is_none() && access.context.is_none());
}

#[test]
fn command_lines_of_kube_dns_manifests_are_accepted() {
    for line in [
        "--domain=cluster.local. --dns-port=10053 --config-dir=/kube-dns-config --v=2",
        "--domain=cluster.local --dns-port=10053 --config-map=kube-dns --v=2 -logtostderr",
        "--domain=cluster.local. --dns-port=10053 --federations=fed=fed.example --logtostderr=true",
        "-domain=cluster.local. -dns_port 10053 --kube-master-url=http://127.0.0.1:8080",
        "--kubecfg-file=/etc/k --nameservers=8.8.8.8:53,8.8.4.4 --initial-sync-timeout=2m --profiling",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let options = options(&words).unwrap_or_else(|exit| panic!("{line}: {}", exit.stderr));
        assert_eq!(options.domain.first.as_str(), "cluster.local.", "{line}");
    }
}

#[test]
fn help_extends_that_of_kube_dns() {
    let ours = options(&["--help"]).unwrap_err();
    assert_eq!(ours.status, 0);
    let squeeze = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let (ours, commands) = ours.stderr.split_once("\n\nCommands:\n").unwrap();
    assert!(commands.contains("  kube-dns explain NAME"));
    assert!(commands.contains("  kube-dns check config "));
    let ours: Vec<String> = ours.lines().map(squeeze).collect();
    // Differs from kube-dns: there is no profiling.
    let captured = include_str!("../../testdata/kube-dns-help.txt").replace(
        "specifies whether to enable profiling",
        "accepted without effect: there is no profiling over HTTP",
    );
    for line in captured
        .lines()
        .filter(|line| !line.starts_with("$ ") && !line.starts_with("---"))
    {
        assert!(ours.contains(&squeeze(line)), "{line}");
    }
    let old = captured
        .lines()
        .filter(|line| line.trim_start().starts_with('-'))
        .count()
        - 2;
    let new: Vec<&String> = ours
        .iter()
        .filter(|line| {
            line.starts_with("--") && !captured.contains(line.split(' ').next().unwrap())
        })
        .collect();
    assert_eq!(ours.len(), 1 + old + new.len(), "{new:#?}");
}

#[test]
fn flag_errors_are_those_of_kube_dns() {
    let captured = include_str!("../../testdata/kube-dns-bad-flags.txt");
    let mut cases = 0;
    for case in captured.split("\n\n") {
        let (line, expected) = case.trim().split_once('\n').unwrap();
        let words: Vec<&str> = line.split(' ').skip(2).collect();
        let exit = options(&words).unwrap_err();
        assert_eq!(exit.stderr.lines().last(), Some(expected), "{line}");
        assert_eq!(exit.status, 2, "{line}");
        cases += 1;
    }
    assert_eq!(cases, 18);
}

/// The original kube-dns accepts these values at start. docs/differences.md describes this
/// difference (`impossible-flag-values`).
#[test]
fn impossible_value_is_rejected_at_start() {
    let long_domain = ["a".repeat(60).as_str(); 3].join(".");
    let out_of_range = "strconv.ParseInt: parsing \"70000\": value out of range";
    let wrong_url = "invalid kube-master-url specified";
    let too_long = "must be no more than 180 characters, to leave room for the names of services";
    for (flag, value, reason) in [
        ("healthz-port", "70000", out_of_range),
        ("dns-port", "70000", out_of_range),
        ("kube-master-url", "tcp://10.0.0.1:6443", wrong_url),
        ("domain", &long_domain, too_long),
    ] {
        let exit = options(&[&format!("--{flag}={value}")]).unwrap_err();
        let line = format!("invalid argument {value:?} for \"--{flag}\" flag: {reason}");
        assert_eq!(exit.stderr.lines().last(), Some(&*line), "{flag}");
        assert_eq!(exit.status, 2, "{flag}");
    }
}

#[test]
fn record_options_follow_flags() {
    let records = |words: &[&str]| {
        let options = options(words).unwrap();
        options.index_options(&Scope::default(), None).records
    };
    assert_eq!(records(&[]), RecordOptions::default());
    for (flag, names) in [
        ("--endpoint-names=hash", EndpointNames::Hash),
        ("--endpoint-names=address", EndpointNames::Address),
        ("--endpoint_names=pod", EndpointNames::Pod),
    ] {
        assert_eq!(records(&[flag]).endpoint_names, names, "{flag}");
    }
    assert!(records(&["--ignore-empty-services"]).ignore_empty_services);
    let exit = options(&["--endpoint-names=ip"]).unwrap_err();
    let line = exit.stderr.lines().last().unwrap_or_default();
    let start = "invalid argument \"ip\" for \"--endpoint-names\" flag";
    assert!(line.starts_with(start), "{line}");
}

#[test]
fn extended_errors_need_flag() {
    let told = |words: &[&str]| options(words).unwrap().zone().unwrap().extended_errors;
    assert!(!told(&[]) && told(&["--extended-errors"]) && !told(&["--extended-errors=false"]));
}

#[test]
fn scope_follows_flags() {
    let scope = |words: &[&str]| options(words).unwrap().scope();
    assert_eq!(scope(&[]), Ok(Scope::default()));
    let only = Namespaces::Only(vec!["b".into(), "a".into()]);
    let selected = Namespaces::Selected("team=a".to_owned());
    let of = |namespaces: &Namespaces, services: Option<&str>| {
        Ok(Scope {
            namespaces: namespaces.clone(),
            services: services.map(str::to_owned),
        })
    };
    assert_eq!(scope(&["--namespaces=b,a"]), of(&only, None));
    let both = scope(&["--namespace-selector=team=a", "--selector=x"]);
    assert_eq!(both, of(&selected, Some("x")));
    let both = scope(&["--namespaces=a", "--namespace-selector=team=a"]).unwrap_err();
    assert_eq!(
        both.to_string(),
        "cannot use both --namespaces and --namespace-selector: name the namespaces, or select them by their labels"
    );
    for (flag, reason) in [
        (
            "--namespaces=A",
            "invalid argument \"A\" for \"--namespaces\" flag: \"A\" is not the name of a namespace: expected at most 63 \
             lower case letters, digits and '-', with a letter or digit at both ends",
        ),
        (
            "--selector=a b",
            "invalid argument \"a b\" for \"--selector\" flag: \"a b\" is not a valid part of a label selector: expected KEY=VALUE, \
             KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY or !KEY",
        ),
    ] {
        let exit = options(&[flag]).unwrap_err();
        assert_eq!(exit.stderr.lines().last(), Some(reason), "{flag}");
    }
}

#[test]
fn snapshot_identity_follows_flags() {
    let identity = |words: &[&str]| options(words).unwrap().snapshot_identity();
    let neutral = identity(&["--endpoint-names=address", "--pods=disabled"]);
    assert_eq!(neutral, "cluster.local.");
    for flags in [
        "--namespaces=a,b --selector=x --endpoint-names=pod --pods=verified",
        "--namespace-selector=x",
    ] {
        let words: Vec<&str> = flags.split(' ').collect();
        assert_eq!(identity(&words), format!("cluster.local. {flags}"));
    }
}

#[test]
fn master_url_needs_scheme_and_host() {
    for good in [
        "http://127.0.0.1:8080",
        "https://[fd00::1]:6443/",
        "https://api.example/prefix",
    ] {
        assert_eq!(good.parse(), Ok(MasterUrl(good.to_owned())));
    }
    for bad in [
        "",
        "nohost",
        "http://",
        "//host",
        "ftp://host",
        "http://:80",
        "http://a b",
    ] {
        assert_eq!(bad.parse::<MasterUrl>(), Err(MasterUrlError), "{bad}");
    }
}

#[test]
fn cache_limits_follow_flags() {
    let limits = |entries, stale| {
        Some(CacheLimits {
            entries,
            stale,
            ..CacheLimits::default()
        })
    };
    let usual = CacheLimits::default();
    let hour = Duration::from_hours(1);
    for (words, cache) in [
        (&[][..], None),
        (&["--cache-size=0", "--serve-stale=0"], None),
        (&["--search-suffix=search.cluster.local"], Some(usual)),
        (&["--autopath"], Some(usual)),
        (&["--cache-size=500"], limits(500, usual.stale)),
        (&["--serve-stale=1h"], limits(10_000, hour)),
        (&["--cache-size=0x20", "--serve-stale=1h"], limits(32, hour)),
    ] {
        assert_eq!(options(words).unwrap().cache_limits(), cache, "{words:?}");
    }
    for bad in ["-1", "many", "", "1000001"] {
        let exit = options(&[&format!("--cache-size={bad}")]).unwrap_err();
        let reason = "must be a number of entries from 0 to 1000000";
        let line = format!("invalid argument {bad:?} for \"--cache-size\" flag: {reason}");
        assert_eq!(exit.stderr.lines().last(), Some(&*line));
    }
}

#[test]
fn client_rate_follows_flags() {
    for (words, expected) in [
        (&[][..], None),
        (&["--client-burst=50"], None),
        (&["--client-qps=100"], Some((100, 200))),
        (&["--client-qps=100", "--client-burst=50"], Some((100, 50))),
    ] {
        let rate = options(words).unwrap().client_rate.rate();
        let found = rate.map(|rate| (rate.qps.get(), rate.burst.get()));
        assert_eq!(found, expected, "{words:?}");
    }
    let exit = options(&["--client-qps=1000001"]).unwrap_err();
    let line = "invalid argument \"1000001\" for \"--client-qps\" flag: \
                must be a number of queries from 0 to 1000000";
    assert_eq!(exit.stderr.lines().last(), Some(line));
}

#[test]
fn cluster_accepts_several_domains() {
    let all = |text: &str| {
        let domains: Result<ClusterDomains, _> = text.parse();
        domains.map_or_else(|error| error.to_string(), |domains| domains.to_string())
    };
    let nested = "no domain of a cluster may equal another one, or be below it";
    for (text, expected) in [
        ("cluster.local", "cluster.local."),
        ("new.example,cluster.local.", "new.example.,cluster.local."),
        ("a, b", "a.,b."),
        ("a,a.", &format!("a. is in a.: {nested}")),
        (
            "cluster.local,b.cluster.local",
            &format!("b.cluster.local. is in cluster.local.: {nested}"),
        ),
        (
            "a,b,c,d,e,f,g,h,i",
            "there are 9 domains; at most 8 are accepted",
        ),
    ] {
        assert_eq!(all(text), expected, "{text}");
    }
    for bad in ["", ",", "a,", "a,B"] {
        let parsed = bad.parse::<ClusterDomains>();
        assert_eq!(parsed, Err(DomainError::Label.into()), "{bad}");
    }
    let options = options(&["--domain=new.example,cluster.local", "--fallthrough=."]).unwrap();
    let zones = options.fallthrough().unwrap();
    let zones: Vec<String> = zones.iter().map(Name::to_string).collect();
    assert_eq!(zones, ["new.example.", "cluster.local."]);
}

#[test]
fn fallthrough_accepts_zones_of_cluster() {
    let said = |flag: &str| {
        let zones = options(&[&format!("--fallthrough={flag}")])
            .unwrap()
            .fallthrough();
        let zones = zones.map_err(|error| error.to_string())?;
        let names: Vec<String> = zones.iter().map(Name::to_string).collect();
        Ok::<_, String>(names.join(" "))
    };
    for (flag, expected) in [
        ("", ""),
        (".", "cluster.local."),
        ("local", "cluster.local."),
        ("cluster.local", "cluster.local."),
        (
            "vm.cluster.local., a.svc.cluster.local",
            "vm.cluster.local. a.svc.cluster.local.",
        ),
        // Corefiles often have `fallthrough in-addr.arpa ip6.arpa`. kubedns forwards missing
        // reverse names even without the flag, and accepts these zones without effect.
        ("in-addr.arpa,ip6.arpa,10.in-addr.arpa", ""),
    ] {
        assert_eq!(said(flag).as_deref(), Ok(expected), "{flag}");
    }
    let reason = "--fallthrough: no name of cluster.local. is in example.com.; use cluster.local., a zone below it, or \".\" \
                  for all names";
    assert_eq!(said("cluster.local,example.com"), Err(reason.to_owned()));
}

#[test]
fn zone_ttls_are_whole_seconds() {
    for (text, expected) in [
        ("", None),
        ("0", Some(0)),
        ("5s", Some(5)),
        ("1h", Some(3600)),
        ("1m30s", Some(90)),
    ] {
        assert_eq!(text.parse(), Ok(ZoneTtl(expected)), "{text}");
    }
    for text in ["5", "500ms", "1h1s", "-5s", "1.5s", "long"] {
        let exit = options(&[&format!("--ttl={text}")]).unwrap_err();
        let reason = "must be whole seconds, such as 30s, from 0s to 1h0m0s";
        let line = format!("invalid argument {text:?} for \"--ttl\" flag: {reason}");
        assert_eq!(exit.stderr.lines().last(), Some(&*line));
    }
}

#[test]
fn only_usable_search_flags_are_accepted() {
    let name = |text: &str| Name::parse(text).unwrap();
    let flags = |suffix: &str, domains: Option<&[&str]>| {
        let domains = domains.map(|domains| domains.iter().map(|domain| name(domain)).collect());
        Ok(Some(SearchFlags {
            suffix: Some(name(suffix)),
            autopath: false,
            domains,
        }))
    };
    let suffix = "--search-suffix=search.cluster.local";
    let taken = |suffix: &str, allowed: &str| {
        Err(format!(
            "--search-suffix {suffix} is taken by names of the cluster: use a domain {allowed}"
        ))
    };
    let outside_cluster =
        "such as search.cluster.local., but neither cluster.local. nor a domain above it";
    for (words, expected) in [
        (&[][..], Ok(None)),
        (&["--search-suffix=", "--search-domains="], Ok(None)),
        (&[suffix], flags("search.cluster.local", None)),
        (&["--search-suffix=pods.example."], flags("pods.example", None)),
        (
            &[suffix, "--search-domains=corp.example, example."],
            flags("search.cluster.local", Some(&["corp.example", "example"])),
        ),
        (
            &["--search-domains=corp.example"],
            Err("--search-domains needs --search-suffix or --autopath: without these flags, no search list is used".to_owned()),
        ),
        (&["--search-suffix=a.test,b.test"], Err("--search-suffix takes one domain, not 2".to_owned())),
        (&["--search-suffix=cluster.local"], taken("cluster.local.", outside_cluster)),
        (&["--search-suffix=local"], taken("local.", outside_cluster)),
        (&["--search-suffix=search.svc.cluster.local"], taken("search.svc.cluster.local.", "outside of svc.cluster.local.")),
        (&["--search-suffix=pod.cluster.local"], taken("pod.cluster.local.", "outside of pod.cluster.local.")),
        (
            &[suffix, "--search-domains=apps.search.cluster.local"],
            Err("--search-domains: apps.search.cluster.local. has no effect, because it is within --search-suffix: when kubedns walks a search list, it skips names within the suffix".to_owned()),
        ),
        (
            &[suffix, "--search-domains=a,b,c,d,e,f,g,h,i"],
            Err("--search-domains has 9 domains, but at most 8 are accepted: each may cost a query to an upstream".to_owned()),
        ),
    ] {
        let said = options(words).unwrap().search().map_err(|error| error.to_string());
        assert_eq!(said, expected, "{words:?}");
    }
    let exit = options(&["--search-domains=a..b"]).unwrap_err();
    assert!(
        exit.stderr.ends_with(
            "(e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')]\n"
        ),
        "{}",
        exit.stderr
    );
}

#[test]
fn autopath_needs_known_clients() {
    let name = |text: &str| Name::parse(text).unwrap();
    let flags = SearchFlags {
        suffix: None,
        autopath: true,
        domains: None,
    };
    let [autopath, verified, node] = ["--autopath", "--pods=verified", "--pods=node"];
    let [suffix, domains] = [
        "--search-suffix=search.cluster.local",
        "--search-domains=corp.example",
    ];
    let unseen = "--autopath needs --topology=direct or --topology=alone: behind dnsmasq kubedns does not see \
                  the addresses of its clients";
    let unknown = "--autopath needs --pods=verified or --pods=node: kubedns learns a client's namespace from the \
                   pod that has the client's address";
    for (words, expected) in [
        (
            &[autopath, verified, "--topology=alone"][..],
            Ok(Some(flags.clone())),
        ),
        (
            &[autopath, node, "--topology=direct"],
            Ok(Some(flags.clone())),
        ),
        (
            &[autopath, verified, "--topology=direct", domains, suffix],
            Ok(Some(SearchFlags {
                suffix: Some(name("search.cluster.local")),
                domains: Some(vec![name("corp.example")]),
                ..flags
            })),
        ),
        (&[autopath, verified], Err(unseen)),
        (&[autopath, verified, "--topology=cache"], Err(unseen)),
        (&[autopath, "--topology=alone"], Err(unknown)),
        (
            &[autopath, "--topology=direct", "--pods=disabled"],
            Err(unknown),
        ),
    ] {
        let said = options(words)
            .unwrap()
            .search()
            .map_err(|error| error.to_string());
        assert_eq!(said, expected.map_err(str::to_owned), "{words:?}");
    }
}

#[test]
fn kubeconfig_context_needs_file() {
    let context = |words: &[&str]| {
        let access = options(words).unwrap().access()?;
        Ok(access.context)
    };
    let file = "--kubecfg-file=/k";
    let given = context(&[file, "--kubecfg-context=c"]);
    assert_eq!(given, Ok(Some("c".to_owned())));
    assert_eq!(context(&[file, "--kubecfg-context="]), Ok(None));
    assert_eq!(context(&["--kubecfg-context=c"]), Err(ContextWithoutFile));
}

#[test]
fn at_most_one_config_source_is_accepted() {
    let from = |words: &[&str]| options(words).unwrap().config_from();
    let directory = ConfigFrom::Directory("/c".into(), Duration::from_secs(3));
    let often = from(&["--config-dir=/c", "--config-period=3s"]);
    assert_eq!(often, Ok(directory));
    for never in ["--config-period=0", "--config-period=-1s"] {
        let directory = ConfigFrom::Directory("/c".into(), GoPeriod::NEVER);
        assert_eq!(from(&["--config-dir=/c", never]), Ok(directory), "{never}");
    }
    let map = ConfigFrom::ConfigMap("kube-system".to_owned(), "kube-dns".to_owned());
    assert_eq!(from(&["--config-map=kube-dns", "--config-dir="]), Ok(map));
    let both = from(&["--config-map=kube-dns", "--config-dir=/c"]);
    assert_eq!(both, Err(BothConfigs));
}

#[test]
fn command_check_config_knows_every_flag() {
    use clap::CommandFactory as _;

    let command = Options::command();
    let unknown: Vec<&str> = command
        .get_arguments()
        .filter_map(clap::Arg::get_long)
        .filter(|name| !check::is_known_flag(name))
        .collect();
    assert_eq!(unknown, [""; 0]);
}
