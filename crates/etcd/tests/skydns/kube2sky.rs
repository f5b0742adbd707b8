//! Records of a cluster as kube2sky wrote them, and two records that were written by hand. kube2sky
//! puts a label in front of each name: the FNV-1a hash of the message.
//!
//! The cluster has a Service `web` with a cluster IP and two named ports, and a headless Service
//! `db` with two pods. Each pod also has a name with its address, such as `10-1-0-5.default.pod`.

use crate::table::Served;

const MESSAGES: &[(&str, &str)] = &[
    (
        "5f106532.web.default.svc.old.local",
        r#"{"host":"10.0.0.10","priority":10,"weight":10,"ttl":30}"#,
    ),
    (
        "5f106532._http._tcp.web.default.svc.old.local",
        r#"{"host":"web.default.svc.old.local.","port":80,"priority":10,"weight":10,"ttl":30}"#,
    ),
    (
        "5f106532._https._tcp.web.default.svc.old.local",
        r#"{"host":"web.default.svc.old.local.","port":443,"priority":10,"weight":10,"ttl":30}"#,
    ),
    (
        "25a675c7.db.default.svc.old.local",
        r#"{"host":"10.1.0.5","priority":10,"weight":10,"ttl":30}"#,
    ),
    (
        "25a675c7._sql._tcp.db.default.svc.old.local",
        r#"{"host":"25a675c7.db.default.svc.old.local.","port":5432,"priority":10,"weight":10,"ttl":30}"#,
    ),
    (
        "25a675c7.10-1-0-5.default.pod.old.local",
        r#"{"host":"10.1.0.5","priority":10,"weight":10,"ttl":30}"#,
    ),
    (
        "7f135730.db.default.svc.old.local",
        r#"{"host":"10.1.0.6","priority":10,"weight":10,"ttl":30}"#,
    ),
    (
        "7f135730._sql._tcp.db.default.svc.old.local",
        r#"{"host":"7f135730.db.default.svc.old.local.","port":5432,"priority":10,"weight":10,"ttl":30}"#,
    ),
    (
        "7f135730.10-1-0-6.default.pod.old.local",
        r#"{"host":"10.1.0.6","priority":10,"weight":10,"ttl":30}"#,
    ),
    (
        "mail.by-hand.old.local",
        r#"{"host":"10.9.9.9","mail":true,"priority":5}"#,
    ),
    ("note.by-hand.old.local", r#"{"text":"written by hand"}"#),
];

const CASES: &[(&str, &str)] = &[
    (
        "web.default.svc.old.local A",
        "web.default.svc.old.local. A 10.0.0.10",
    ),
    ("web.default.svc.old.local AAAA", "NODATA"),
    (
        "_http._tcp.web.default.svc.old.local SRV",
        "_http._tcp.web.default.svc.old.local. SRV 10 100 80 web.default.svc.old.local.
         + web.default.svc.old.local. A 10.0.0.10",
    ),
    (
        "5f106532.web.default.svc.old.local A",
        "5f106532.web.default.svc.old.local. A 10.0.0.10",
    ),
    (
        "web.default.svc.old.local SRV",
        "web.default.svc.old.local. SRV 10 33 0 5f106532.web.default.svc.old.local.
         web.default.svc.old.local. SRV 10 33 443 web.default.svc.old.local.
         web.default.svc.old.local. SRV 10 33 80 web.default.svc.old.local.
         + 5f106532.web.default.svc.old.local. A 10.0.0.10
         + web.default.svc.old.local. A 10.0.0.10",
    ),
    (
        "_sql._tcp.db.default.svc.old.local SRV",
        "_sql._tcp.db.default.svc.old.local. SRV 10 50 5432 25a675c7.db.default.svc.old.local.
         _sql._tcp.db.default.svc.old.local. SRV 10 50 5432 7f135730.db.default.svc.old.local.
         + 25a675c7.db.default.svc.old.local. A 10.1.0.5
         + 7f135730.db.default.svc.old.local. A 10.1.0.6",
    ),
    (
        "25a675c7.db.default.svc.old.local A",
        "25a675c7.db.default.svc.old.local. A 10.1.0.5",
    ),
    (
        "10-1-0-6.default.pod.old.local A",
        "10-1-0-6.default.pod.old.local. A 10.1.0.6",
    ),
    ("10-1-0-7.default.pod.old.local A", "NXDOMAIN"),
    ("gone.default.svc.old.local A", "NXDOMAIN"),
    (
        "mail.by-hand.old.local MX",
        "mail.by-hand.old.local. MX 5 mail.by-hand.old.local.
         + mail.by-hand.old.local. A 10.9.9.9",
    ),
    (
        "note.by-hand.old.local TXT",
        "note.by-hand.old.local. TXT \"written by hand\"",
    ),
];

#[tokio::test]
async fn records_of_kube2sky_are_served_as_skydns_did() {
    let Some(served) = Served::from(&["old.local"], MESSAGES, "what kube2sky wrote is").await
    else {
        return;
    };
    served.check(CASES, &[]);
    // The answer contains all records below the name. These include the addresses of both pods. The
    // records of the port have a host name, so they are answered as CNAME. Only one of the two
    // aliases is in the answer.
    let either = ["25a675c7", "7f135730"].map(|alias| {
        [
            "25a675c7.db.default.svc.old.local. A 10.1.0.5",
            "7f135730.db.default.svc.old.local. A 10.1.0.6",
            "db.default.svc.old.local. A 10.1.0.5",
            "db.default.svc.old.local. A 10.1.0.6",
            &format!("db.default.svc.old.local. CNAME {alias}.db.default.svc.old.local."),
        ]
        .join("\n")
    });
    let answered = served.ask("db.default.svc.old.local A", &[]);
    assert!(either.contains(&answered), "{answered}");
}
