//! Writes first inputs for the fuzzers: `cargo run -p properties --example seeds -- DIRECTORY`.
//!
//! They are made from the conformance vectors and from what stands here, into one directory for each property. What a
//! fuzzer finds worth keeping of them is kept in `fuzz/corpus/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::CommandFactory as _;
use cluster::index::Index;
use cluster::objects::{Change, EndpointSlice, Endpoints, EndpointsSource, Event, FromApi as _, Service};
use cluster::snapshot::{Published, Snapshot};
use serde_json::Value;
use skydns::{Name, Zone};
use testkit::hex::unhex;
use testkit::query::Query;
use testkit::reply::Reply;
use testkit::upstream::Transport;
use tests::conformance::vector::{self, Scenario};

/// Where inputs are written to.
struct Seeds(PathBuf);

fn main() -> anyhow::Result<()> {
    let directory = std::env::args_os().nth(1).context("a directory is missing")?;
    let seeds = Seeds(directory.into());
    let scenarios = vector::load_all()?;
    queries(&seeds, &scenarios)?;
    replies(&seeds, &scenarios)?;
    config_maps(&seeds, &scenarios)?;
    probes(&seeds)?;
    flags(&seeds)?;
    objects(&seeds, &scenarios)?;
    responses(&seeds)
}

impl Seeds {
    /// Writes an input under a name made of its content, so that equal ones are one.
    fn write(&self, property: &str, input: &[u8]) -> anyhow::Result<()> {
        let directory = self.0.join(property);
        fs::create_dir_all(&directory)?;
        let name = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, octet| {
            (hash ^ u64::from(*octet)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let path: &Path = &directory.join(format!("{name:016x}"));
        fs::write(path, input).with_context(|| path.display().to_string())
    }
}

/// Names in the properties' own cluster.
const NAMES: &[&str] = &[
    "kubernetes.default.svc",
    "web.apps.svc",
    "WEB.Apps.svc",
    "_http._tcp.web.apps.svc",
    "_dns._udp.web.apps.svc",
    "_s._sctp.web.apps.svc",
    "*.web.apps.svc",
    "*._tcp.web.apps.svc",
    "_http.*.web.apps.svc",
    "db.apps.svc",
    "db-0.db.apps.svc",
    "db-1.db.apps.svc",
    "_sql._tcp.db.apps.svc",
    "db-0._sql._tcp.db.apps.svc",
    "bare.apps.svc",
    "none.apps.svc",
    "out.apps.svc",
    "shout.apps.svc",
    "stub.apps.svc",
    "in.apps.svc",
    "address.apps.svc",
    "address6.apps.svc",
    "one.apps.svc",
    "self.apps.svc",
    "nowhere.apps.svc",
    "short.apps.svc",
    "wild.apps.svc",
    "far.apps.svc",
    "hop0.apps.svc",
    "hop5.apps.svc",
    "*.apps.svc",
    "*.*.svc",
    "*.*.*.svc",
    "apps.svc",
    "svc",
    "",
    "*",
    "any.web.apps.svc",
    "web.apps.fed.svc",
    "db.apps.fed.svc",
    "gone.apps.fed.svc",
    "10-0-0-1.apps.pod",
    "fd00--1.apps.pod",
    "300-0-0-1.apps.pod",
    "pod",
    "apps.pod",
    "*.apps.pod",
    "ns.dns",
    "dns",
    "gone.apps.svc",
    "big.apps.svc",
    "m-1.big.apps.svc",
    "_a._tcp.big.apps.svc",
    "huge.apps.svc",
    "_a._tcp.wide.apps.svc",
    "wide.apps.svc",
    "o1.out.svc",
    "*.out.svc",
    "_tcp.web.apps.svc",
    "3739633131663434.web.apps.svc",
];

fn queries(seeds: &Seeds, scenarios: &[Scenario]) -> anyhow::Result<()> {
    let mut number = 0_u8;
    let cases = scenarios.iter().flat_map(|scenario| &scenario.steps).flat_map(|step| &step.queries);
    for case in cases {
        number = number.wrapping_add(1);
        let transport = u8::from(case.query.transport == Transport::Tcp);
        seeds.write("query", &[&[number << 1 | transport][..], &case.query.packet(1)?].concat())?;
    }
    for name in NAMES {
        let name = format!("{name}.cluster.local").trim_start_matches('.').to_owned();
        for (at, rtype) in ["A", "AAAA", "SRV", "CNAME", "TXT", "NS", "SOA", "PTR"].iter().enumerate() {
            for choice in [0, 2, 6, 0x10, 0x20, 0x30, 0x16, 0x36, 0x37] {
                let query = Query::new(&format!("{name}."), rtype);
                let query =
                    if (at + usize::from(choice)).is_multiple_of(3) { query } else { query.edns(4096) };
                seeds.write("query", &[&[choice][..], &query.wire()].concat())?;
            }
        }
    }
    Ok(())
}

fn replies(seeds: &Seeds, scenarios: &[Scenario]) -> anyhow::Result<()> {
    let mut number = 0_u8;
    let cases = scenarios.iter().flat_map(|scenario| &scenario.steps).flat_map(|step| &step.queries);
    for hex in cases.flat_map(|case| &case.upstream).flat_map(|exchange| &exchange.response_wire) {
        number = number.wrapping_add(37);
        seeds.write("reply", &[&[number, 4, number][..], &unhex(hex).context("not hex")?].concat())?;
    }
    let name = "www.outside.test.";
    for (number, rtype, data) in [
        (1, "A", vec![]),
        (
            2,
            "A",
            vec!["www.outside.test. 60 IN CNAME edge.outside.test.", "edge.outside.test. 60 IN A 192.0.2.7"],
        ),
        (
            3,
            "A",
            vec!["edge.outside.test. 60 IN A 192.0.2.7", "www.outside.test. 60 IN CNAME edge.outside.test."],
        ),
        (6, "A", vec!["www.outside.test. 60 IN CNAME www.outside.test."]),
        (7, "A", vec!["web.apps.svc.cluster.local. 60 IN A 192.0.2.66"]),
        (0x42, "AAAA", vec!["WWW.outside.test. 60 IN AAAA 2001:db8::1"]),
        (0x82, "SRV", vec!["www.outside.test. 60 IN SRV 1 2 3 edge.outside.test."]),
        (2, "MX", vec!["www.outside.test. 60 IN MX 1 edge.outside.test."]),
        (2, "TXT", vec!["www.outside.test. 60 IN TXT \"a\" \"b\""]),
    ] {
        let query = Query::new(name, rtype).edns(1232).wire();
        let reply = data.iter().fold(Reply::to(&query), |reply, record| reply.answer(record));
        let reply = reply.wire();
        seeds.write("reply", &[&[number, 4, 0][..], &reply].concat())?;
    }
    Ok(())
}

/// A resolv.conf and the four keys.
const CONFIG_MAPS: &[[&str; 5]] = &[
    ["nameserver 192.0.2.1\nnameserver 2001:db8::1\nsearch a.example\noptions ndots:5\n", "{}", "[]", "", ""],
    [
        "",
        r#"{"acme.example": ["192.0.2.10", "192.0.2.11:5353", "2001:db8::10", "[2001:db8::11]:5353"]}"#,
        "null",
        "a=b.example",
        "x",
    ],
    [
        "",
        r#"{"acme.example": ["ns.acme.example", "ns2.acme.example:5353"], "b": [], "c": null, "d.e": ["one"]}"#,
        r#"["192.0.2.1", "192.0.2.2:5353", "2001:db8::1"]"#,
        "a = b.example , c=d.example",
        "",
    ],
    ["nameserver ::\n", "{\"a.example\": [\"192.0.2.1\\nlog-queries\"]}", "[\"[2001:db8::1]:53\"]", "", ""],
    ["", "{\"a.example\\nserver=/#/1.2.3.4\": [\"192.0.2.1\"]}", "[\"192.0.2.1#53\"]", "", ""],
    ["", "{\"a/b.example\": [\"192.0.2.1@eth0\"], \"#\": [\"::1%1\"]}", "[null]", "=", ""],
    [
        "",
        r#"{"a.example": ["::ffff:192.0.2.1", "[::ffff:10.0.0.1]:1", "192.0.2.1:", "[ns.example]:53"]}"#,
        "[]",
        "a=b=c",
        "",
    ],
    ["", r#"{"2.0.192.in-addr.arpa": ["192.0.2.1"], "2.0.192.in-addr.arpa": []}"#, "[", "", ""],
];

fn config_maps(seeds: &Seeds, scenarios: &[Scenario]) -> anyhow::Result<()> {
    for values in CONFIG_MAPS {
        seeds.write("config_map", values.join("\0").as_bytes())?;
    }
    let steps =
        scenarios.iter().flat_map(|scenario| &scenario.steps).filter_map(|step| step.config_dir.as_ref());
    for files in scenarios.iter().filter_map(|scenario| scenario.config_dir.as_ref()).chain(steps) {
        let keys = ["stubDomains", "upstreamNameservers", "federations"];
        let mut values = vec!["nameserver 192.0.2.9\n"];
        values.extend(keys.map(|key| files.get(key).map_or("", String::as_str)));
        let text =
            values.join("\0").replace("$UPSTREAM", "192.0.2.1:5353").replace("$RESOLV_IP", "192.0.2.1");
        seeds.write("config_map", text.as_bytes())?;
    }
    Ok(())
}

fn probes(seeds: &Seeds) -> anyhow::Result<()> {
    for text in [
        "kubedns,127.0.0.1:10053,kubernetes.default.svc.cluster.local,5,SRV",
        "dnsmasq,127.0.0.1:53,kubernetes.default.svc.cluster.local.,5,A",
        "l,127.0.0.1,x",
        "l,127.0.0.1,x,10",
        "l,::1,x,007,AAAA",
        "l,[::1],x,+7,ANY",
        "L_9,[::1]:5353,_http._tcp.x.,600,ANY/tcp",
        "l,dns.example:53,.,0,SRV/udp",
        "l,NAME,a\\.b\\065.*.x,-3,A",
        "l,,\\000.\\255.\\\\.x",
        "l,127.0.0.1,x,9223372036854775807,A/tcp",
        "a-b,127.0.0.1:x,a..b,5s,MX/tcp",
        "l,fe80::1%1,\u{fc}.xn--tda",
    ] {
        seeds.write("probe", text.as_bytes())?;
    }
    Ok(())
}

fn flags(seeds: &Seeds) -> anyhow::Result<()> {
    let commands =
        [kubedns::options::Options::command(), sidecar::Options::command(), nanny::flags::Flags::command()];
    let values = [
        "",
        "true",
        "F",
        "0",
        "53",
        "0x1_0",
        "1m30s",
        "1.5h",
        "cluster.local.",
        "a=b.example",
        "json",
        "x,y,z,1,A",
    ];
    for (program, command) in (0_u8..).zip(commands) {
        for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
            for (at, value) in values.iter().enumerate() {
                let flag = if at % 2 == 0 { flag.replace('-', "_") } else { flag.to_owned() };
                let dashes = if at % 3 == 0 { "-" } else { "--" };
                let words = [
                    vec![format!("{dashes}{flag}={value}")],
                    vec![format!("{dashes}{flag}"), (*value).to_owned()],
                ];
                for words in words {
                    seeds.write("flags", &[&[program][..], words.join("\n").as_bytes()].concat())?;
                }
            }
        }
        for words in [
            "--help",
            "--version",
            "--version=raw",
            "-v2",
            "-v=2",
            "--v\n4",
            "--\nx",
            "x\n--v=2",
            "--no-such=1",
            "-",
            "--=",
            "--domain=a.b.\n--dns-port=053\n--config-dir=/x\n--v=2\n--logtostderr\n--kube-master-url=http://$A:8080",
            "--probe=l,127.0.0.1,x,5,A\n--probe=m,[::1]:53,y.\n--health=through\n--prometheus-port=0b11",
            "-v=2\n-logtostderr\n-configDir=/x\n-restartDnsmasq=true\n--\n-k\n--cache-size=1000\n--server=/cluster.local/127.0.0.1#10053\n--server=/in-addr.arpa/127.0.0.1#10053\n-p\n54\n-a127.0.0.1,::1\n--port=5353\n--resolv-file=/r\n-R\n--log-facility=-",
        ] {
            seeds.write("flags", &[&[program][..], words.as_bytes()].concat())?;
        }
    }
    Ok(())
}

/// The course of each scenario as events, and its objects as a snapshot file.
fn objects(seeds: &Seeds, scenarios: &[Scenario]) -> anyhow::Result<()> {
    for scenario in scenarios {
        let initial = scenario.initial.iter().filter_map(|object| line(object, false));
        let events = scenario.steps.iter().flat_map(|step| &step.events);
        let events = events.filter_map(|event| line(event.get("object")?, event.get("type")? == "DELETED"));
        let lines: Vec<String> = initial.chain(["P".to_owned()]).chain(events).collect();
        let kept: Vec<String> = lines.iter().take(24).cloned().collect();
        seeds.write("watch", kept.join("\n").as_bytes())?;
        seeds.write("watch", ["2".to_owned(), slices(&kept), "R".to_owned()].join("\n").as_bytes())?;
        seeds.write("snapshot_file", &[b"0", saved(&lines.join("\n"))?.as_slice()].concat())?;
        seeds.write("snapshot_file", &[b"1", saved(&slices(&lines))?.as_slice()].concat())?;
    }
    let slice = r#"L{"metadata":{"name":"db-1","namespace":"apps","labels":{"kubernetes.io/service-name":"db"},"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"2026-01-01T00:00:00Z"}},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"hostname":"db-0","conditions":{"ready":true,"serving":true,"terminating":false}},{"addresses":["10.0.0.2"],"conditions":{"ready":null}}],"ports":[{"name":"sql","port":5432,"protocol":"TCP"}]}"#;
    let service = r#"S{"metadata":{"name":"db","namespace":"apps"},"spec":{"clusterIP":"None","publishNotReadyAddresses":true}}"#;
    let node = r#"N{"metadata":{"name":"n","labels":{"topology.kubernetes.io/zone":"z","topology.kubernetes.io/region":"r"}}}"#;
    let gone = slice.replacen('L', "l", 1);
    seeds.write("watch", [service, slice, "2", "P", node, &gone, slice, "1"].join("\n").as_bytes())
}

/// What an API server sends that lists and watches, and what one sends that is ill.
fn responses(seeds: &Seeds) -> anyhow::Result<()> {
    let page = |version: u32, next: &str, items: &[&str]| {
        format!(
            r#"l{{"kind":"SomeList","metadata":{{"resourceVersion":"{version}","continue":"{next}"}},"items":[{}]}}"#,
            items.join(",")
        )
    };
    let event = |r#type: &str, object: &str| format!(r#"{{"type":"{type}","object":{object}}}"#) + "\n";
    for kind in 0..4 {
        let [a, db] = ["a", "db"].map(|name| object(kind, name, 3));
        let list = page(5, "", &[&a, &db]);
        let bookmark = event("BOOKMARK", r#"{"metadata":{"resourceVersion":"8"}}"#);
        let events = [
            event("ADDED", &object(kind, "web", 6)),
            event("MODIFIED", &object(kind, "db", 7)),
            bookmark.clone(),
            event("DELETED", &a),
        ];
        let expired =
            r#"{"kind":"Status","reason":"Expired","code":410,"message":"too old resource version"}"#;
        let future = r#"{"code":504,"message":"Too large resource version: 9, current: 3"}"#;
        let courses = [
            vec![list.clone(), format!("l{}", events.concat())],
            vec![list.clone(), format!("s{}", events.join("\u{2}"))],
            vec![list.clone(), format!("b{}", events.concat().replace("object", "obj\u{1}ect"))],
            vec![page(5, "next", &[&a]), page(5, "", &[&db]), format!("l{}", event("ERROR", expired))],
            vec![page(5, "next", &[&a]), format!("4{expired}"), "1{}".into(), "3no".into(), "n".into()],
            vec![list.clone(), format!("s{bookmark}"), page(2, "", &[&a]), "w".into()],
            vec![list.clone(), "l".into(), page(9, "", &[&a.replace("u-a", "u-b")])],
            vec![list.clone(), format!("l{}", event("ERROR", future)), "5<html>".into()],
            vec![
                list.clone(),
                format!("l{}", event("LATER", "{}")),
                "l[]".into(),
                list.clone(),
                "l\u{2}\n".into(),
            ],
            vec![
                list.clone(),
                format!("l{}{{\"type\":\"ADD", events.concat()),
                list.clone(),
                "w".into(),
                "l{".into(),
            ],
        ];
        for course in courses {
            seeds.write("feed", &[&[kind][..], course.join("\0").as_bytes()].concat())?;
        }
    }
    Ok(())
}

/// The JSON of an object; 0 is a Service, 1 Endpoints, 2 a slice, 3 a node.
fn object(kind: u8, name: &str, version: u32) -> String {
    let body = match kind {
        0 => r#""spec":{"clusterIP":"10.96.0.1"}"#,
        1 => r#""subsets":[{"addresses":[{"ip":"10.0.0.1"}],"ports":[{"port":80}]}]"#,
        2 => r#""addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}]"#,
        _ => r#""spec":{}"#,
    };
    let labels = r#"{"kubernetes.io/service-name":"db","topology.kubernetes.io/zone":"y"}"#;
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"apps","uid":"u-{name}","resourceVersion":"{version}","labels":{labels}}},{body}}}"#
    )
}

/// An object as a line of an event, without what nobody reads.
fn line(object: &Value, gone: bool) -> Option<String> {
    let kind = match object.get("kind")?.as_str()? {
        "Service" => 'S',
        "Endpoints" => 'E',
        "Node" => 'N',
        _ => return None,
    };
    let mut object = object.clone();
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    for unread in ["managedFields", "resourceVersion", "uid"] {
        metadata.remove(unread);
    }
    let kind = if gone { kind.to_ascii_lowercase() } else { kind };
    Some(format!("{kind}{object}"))
}

/// The same course with each Endpoints line made into a slice.
fn slices(lines: &[String]) -> String {
    let slice = |line: &String| -> Option<String> {
        let object: Value = serde_json::from_str(line.get(1..)?).ok()?;
        let (metadata, subset) = (object.get("metadata")?, object.pointer("/subsets/0")?);
        let addresses = subset.get("addresses")?.as_array()?;
        let endpoints: Vec<Value> = addresses
            .iter()
            .map(|address| serde_json::json!({"addresses": [address["ip"]], "hostname": address["hostname"]}))
            .collect();
        let slice = serde_json::json!({
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"],
                "labels": {"kubernetes.io/service-name": metadata["name"]}},
            "addressType": "IPv4", "endpoints": endpoints, "ports": subset["ports"],
        });
        Some(format!("L{slice}"))
    };
    let lines: Vec<String> = lines
        .iter()
        .filter_map(|line| if line.starts_with('E') { slice(line) } else { Some(line.clone()) })
        .collect();
    lines.join("\n")
}

/// The lines of a snapshot file after these events.
fn saved(events: &str) -> anyhow::Result<Vec<u8>> {
    let zone = Zone::new(&Name::parse("cluster.local")?);
    let mut index = Index::new(Arc::new(Published::new(Snapshot::new(zone))));
    for (kind, json) in events.lines().filter_map(|line| line.split_at_checked(1)) {
        match kind {
            "S" => index.apply(Event::Service(Change::Apply(Service::from_api(json)?.object))),
            "E" => index.apply(Event::Endpoints(Change::Apply(Endpoints::from_api(json)?.object))),
            "L" => index.apply(Event::EndpointSlice(Change::Apply(EndpointSlice::from_api(json)?.object))),
            _ => {}
        }
    }
    let content =
        cluster::persist::encode(index.store().objects(), EndpointsSource::Endpoints, "cluster.local.")
            .unwrap_or_default();
    let lines: Vec<&[u8]> = content.split(|octet| *octet == b'\n').collect();
    let [_, objects @ .., _, _] = lines.as_slice() else { return Ok(Vec::new()) };
    Ok(objects.get(..objects.len().min(12)).unwrap_or_default().join(&b'\n'))
}
