//! Tests of command lines in the forms that getopt accepts, and of configuration files.

use std::fs;

use super::*;

fn words(line: &str) -> Vec<OsString> {
    line.split(' ')
        .filter(|word| !word.is_empty())
        .map(OsString::from)
        .collect()
}

fn read(line: &str) -> DnsmasqArguments {
    DnsmasqArguments::from_words(words(line))
}

#[test]
fn options_are_read_as_getopt_reads_them() {
    for line in [
        "-p 5353",
        "-p5353",
        "--port=5353",
        "--port 5353",
        "-kp5353",
        "-k -d -p 5353 --no-hosts",
        "--port=1 --port=5353",
    ] {
        assert_eq!(read(line).port(), 5353, "{line}");
    }
    for line in [
        "",
        "-k",
        "-- -p 5353",
        "--cache-size -p --no-hosts 5353",
        "-p",
        "-c-p5353",
    ] {
        assert_eq!(read(line).port(), 53, "{line}");
    }
    assert!(
        read("-kR").has_option("no-resolv")
            && read("--no-resolv").has_option("no-resolv")
            && read("--no-res").has_option("no-resolv")
    );
    assert!(
        !read("-r -R").has_option("no-resolv"),
        "the second word must be the value of the first"
    );
    assert!(
        !read("--resolv-file -R")
            .resolv_files()
            .contains(&PathBuf::from("-R"))
    );
}

#[test]
fn probe_address_follows_listen_arguments() {
    for (line, expected) in [
        ("-k", Some("127.0.0.1:53")),
        ("-p 0", None),
        ("-p 5353 -a 192.0.2.1", Some("192.0.2.1:5353")),
        ("--listen-address=192.0.2.1,127.0.0.2", Some("127.0.0.2:53")),
        (
            "--listen-address=192.0.2.1 --listen-address=::1",
            Some("[::1]:53"),
        ),
        ("-a 0.0.0.0", Some("127.0.0.1:53")),
        ("-i eth0 --except-interface=eth1", Some("127.0.0.1:53")),
        ("--except-interface=lo", None),
        ("-I eth0,l*", None),
        ("-i eth0 -I lo", None),
        ("-a 0.0.0.0 -I lo", Some("127.0.0.1:53")),
        ("-I lo -a 127.0.0.2", Some("127.0.0.2:53")),
        ("-I lo -a 192.0.2.1", Some("192.0.2.1:53")),
    ] {
        let address = read(line)
            .probe_address()
            .map(|address| address.to_string());
        assert_eq!(address.as_deref(), expected, "{line}");
    }
}

#[test]
fn resolv_files_follow_arguments() {
    for (line, expected) in [
        ("-k", "/etc/resolv.conf"),
        ("-k -R", ""),
        ("-r /a", "/a"),
        ("--resolv-file=/a --resolv-file=/b", "/a /b"),
        ("--resolv-file=/a --no-resolv", ""),
    ] {
        let files: Vec<String> = read(line)
            .resolv_files()
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        assert_eq!(files.join(" "), expected, "{line}");
    }
}

#[test]
fn domains_routed_to_kubedns_are_found_except_reverse_zones() {
    let kubedns = "127.0.0.1:10053".parse().unwrap();
    let both = "--server=/in-addr.arpa/127.0.0.1#10053 --server=/cluster.local/127.0.0.1#10053";
    let two =
        "--server=/k8s.test/x.example/127.0.0.1#10053 --server=/cluster.local/127.0.0.1#10053";
    let corp = "--server=/Corp.Example./127.0.0.1#10053";
    let elsewhere = "--server=/cluster.local/127.0.0.1#53 --server=127.0.0.1#10053";
    for (line, expected) in [
        (both, "cluster.local"),
        (two, "k8s.test x.example cluster.local"),
        (corp, "corp.example"),
        ("-S /ip6.arpa/x.example/127.0.0.1#10053", "x.example"),
        ("--local=/cluster.local/127.0.0.1#10053", "cluster.local"),
        (elsewhere, ""),
        ("--server=//127.0.0.1#10053", ""),
        ("--server=/#/127.0.0.1#10053", ""),
        ("--server=/IP6.ARPA./127.0.0.1#10053", ""),
        ("--server=/k8s.myarpa/127.0.0.1#10053", "k8s.myarpa"),
        (
            "--server=/arpa/k8s.home.arpa/127.0.0.1#10053",
            "k8s.home.arpa",
        ),
        ("--server=/10.IN-ADDR.ARPA/127.0.0.1#10053", ""),
    ] {
        let domains = read(line).domains_routed_to(kubedns);
        assert_eq!(domains.join(" "), expected, "{line}");
    }
}

#[test]
fn forwarding_to_kubedns_is_detected() {
    let kubedns = "127.0.0.1:10053".parse().unwrap();
    for (line, expected) in [
        ("--server=/cluster.local/127.0.0.1#10053", true),
        ("-S 127.0.0.1#10053", true),
        ("--local=/in-addr.arpa/ip6.arpa/127.0.0.1#10053", true),
        ("--server=/cluster.local/127.0.0.1#53 --local=/x/", false),
        ("--port=10153 --listen-address=127.0.0.1", false),
    ] {
        assert_eq!(read(line).forwards_to(kubedns), expected, "{line}");
    }
}

#[test]
fn options_are_removed_with_values() {
    for (line, expected) in [
        ("-k --servers-file=/a -q", "-k -q"),
        ("-k --servers-file /a -q", "-k -q"),
        (
            "--servers=/a --server=/a/192.0.2.1",
            "--server=/a/192.0.2.1",
        ),
        ("-k -S 192.0.2.1 --local=192.0.2.2 -q", "-k -q"),
        ("--server /a/192.0.2.1 -k", "--server /a/192.0.2.1 -k"),
        ("-k -- --servers-file=/a", "-k -- --servers-file=/a"),
        (
            "--cache-size --servers-file=/a",
            "--cache-size --servers-file=/a",
        ),
    ] {
        let without = read(line).words_without(&["servers-file"]);
        assert_eq!(without, words(expected), "{line}");
    }
}

/// Servers without a domain are for all names. The nanny removes the movable ones from the
/// arguments. It leaves the fixed ones to dnsmasq: they are in a group of short options such as
/// `-kS192.0.2.1`, or in a file. A server given by name is in neither list.
#[test]
fn movable_and_fixed_servers_for_all_names_are_found() {
    for (line, movable, fixed) in [
        (
            "-k --server=192.0.2.1#5353@eth0",
            "192.0.2.1#5353@eth0 192.0.2.1:5353",
            "",
        ),
        (
            "-S 2001:db8::1 --local=192.0.2.2",
            "2001:db8::1 [2001:db8::1]:53 192.0.2.2 192.0.2.2:53",
            "",
        ),
        ("-kS192.0.2.1", "", "192.0.2.1 192.0.2.1:53"),
        ("--server=/a.example/192.0.2.1", "", ""),
        ("--server=//192.0.2.1 --server=dns.example", "", ""),
        ("-- --server=192.0.2.1", "", ""),
    ] {
        let texts = |servers: Vec<ArgumentServer>| {
            let texts = servers
                .iter()
                .map(|server| format!("{} {}", server.value, server.address));
            texts.collect::<Vec<_>>().join(" ")
        };
        let arguments = read(line);
        assert_eq!(texts(arguments.movable_servers()), movable, "{line}");
        assert_eq!(texts(arguments.fixed_servers()), fixed, "{line}");
    }
}

#[test]
fn configuration_files_are_read_and_script_or_unreadable_file_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    fs::create_dir(dir.path().join("d")).unwrap();
    let main = "# port=1\n  no-resolv # why\nserver = 192.0.2.1#5353\nconf-dir=";
    fs::write(path("main.conf"), format!("{main}{},.bak\n", path("d"))).unwrap();
    let one = "port=5353\nlisten-address=\"127.0.0.2\"";
    fs::write(path("d/one.conf"), one).unwrap();
    fs::write(dir.path().join("d/two.bak"), "port=1").unwrap();
    let arguments = DnsmasqArguments::read(words(&format!("-k -C {}", path("main.conf"))));
    assert_eq!(arguments.unknown, None);
    assert!(arguments.has_option("no-resolv") && !arguments.has_typed_option("no-resolv"));
    assert!(arguments.has_option_in_file("no-resolv") && !arguments.has_option_in_file("k"));
    assert_eq!(arguments.option_values("server"), ["192.0.2.1#5353"]);
    let fixed = arguments.fixed_servers();
    assert_eq!(fixed[0].address.to_string(), "192.0.2.1:5353");
    let address = arguments.probe_address().unwrap();
    assert_eq!(address.to_string(), "127.0.0.2:5353");

    fs::write(dir.path().join("main.conf"), "conf-script=/bin/x").unwrap();
    for (line, is_unknown) in [
        (format!("-C {}", path("main.conf")), true),
        ("--conf-script=/bin/x -C /dev/null".to_owned(), true),
        (format!("-C {}", path("missing")), true),
        ("--conf-file=".to_owned(), false),
    ] {
        let arguments = DnsmasqArguments::read(words(&line));
        assert_eq!(arguments.unknown.is_some(), is_unknown, "{line}");
    }
}

proptest::proptest! {
    #[test]
    fn any_words_are_read_and_kept_if_none_is_removable(words in proptest::collection::vec("(-{0,2}[a-zA-Z0-9=/.,#-]{0,12}|\\PC{0,8})", 0..8)) {
        let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        let arguments = DnsmasqArguments::from_words(words.clone());
        let _ = (arguments.port(), arguments.probe_address(), arguments.resolv_files());
        let _ = arguments.domains_routed_to("127.0.0.1:10053".parse().unwrap());
        let is_changed = arguments.has_typed_option("servers-file")
            || !arguments.movable_servers().is_empty();
        if !is_changed {
            proptest::prop_assert_eq!(arguments.words_without(&["servers-file"]), words);
        }
    }
}

/// `may_answer_external_names` ignores the servers that the nanny knows. These are servers without
/// a domain that are given by IP address (see `addresses_for_all_names`), and servers with the
/// address of kubedns. It also ignores `--address`, except `--address=/#/...`, which is for all
/// names.
#[test]
fn options_that_may_answer_external_names_are_found() {
    let kubedns = "127.0.0.1:10053".parse().unwrap();
    for (option, expected) in [
        ("--cache-size=1000", false),
        ("--server=192.0.2.1", false),
        ("--server=127.0.0.1#10053", false),
        (
            "--server=/cluster.local/in-addr.arpa/127.0.0.1#10053",
            false,
        ),
        ("--server=/acme.example/192.0.2.1", true),
        ("--local=/acme.example/", true),
        ("--server=dns.example", true),
        ("--address=/apps.example/192.0.2.1", false),
        ("--address=/#/192.0.2.1", true),
        ("--servers-file=/etc/servers", true),
    ] {
        let arguments = DnsmasqArguments::from_words(vec![option.into()]);
        let found = arguments.may_answer_external_names(kubedns);
        assert_eq!(found, expected, "{option}");
    }
}
