//! Checks that the Helm chart installs the objects of `manifests/`, that its values set the
//! intended fields of these objects, and that the chart refuses wrong values.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on has to end there"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::table;
use tests::docs::markdown::{Page, code};
use tests::manifests::render::{documents, label, manifests_root, render};
use tests::manifests::{difference, schema};

/// The shapes of the chart. The value `shape` selects the directory of `manifests/` whose objects
/// the chart installs.
const SHAPES: &[&str] = &[
    "alone",
    "base",
    "cache",
    "direct",
    "ha",
    "hardened",
    "node",
    "nodelocal",
    "stock-1.36",
    "trial",
];

fn chart() -> PathBuf {
    tests::repository().join("charts/kube-dns-rs")
}

#[allow(
    clippy::print_stderr,
    reason = "a skipped test must not look like a passed one"
)]
fn is_helm_missing() -> bool {
    let missing = !Command::new("helm")
        .arg("version")
        .output()
        .is_ok_and(|output| output.status.success());
    if missing {
        eprintln!("SKIPPED: helm is not installed, so the chart was NOT rendered");
    }
    missing
}

fn helm(words: &[&str]) -> Output {
    let (subcommand, arguments) = words.split_first().unwrap();
    let mut command = Command::new("helm");
    command
        .arg(subcommand)
        .args((*subcommand == "template").then_some("dns"))
        .arg(chart());
    command
        .args(["--namespace", "kube-system"])
        .args(arguments)
        .output()
        .unwrap()
}

/// The objects that the chart renders with these arguments of `--set-json`.
fn installed(values: &[&str]) -> Vec<Value> {
    let set = values.iter().flat_map(|value| ["--set-json", value]);
    let output = helm(&["template"].into_iter().chain(set).collect::<Vec<_>>());
    assert!(
        output.status.success(),
        "{values:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    documents(&String::from_utf8_lossy(&output.stdout)).unwrap()
}

/// Each file in the chart's `shapes/` is the output of `kubectl kustomize` for the directory of the
/// same name in `manifests/`. The exception is `rbac-pods.yaml`, which is a copy of
/// `components/pods/rbac.yaml`. To regenerate the files, run `UPDATE_CHART=1 cargo test -p tests
/// --test chart`.
#[test]
fn chart_shapes_match_kustomize() {
    for name in SHAPES {
        let file = chart().join(format!("shapes/{name}.yaml"));
        if std::env::var_os("UPDATE_CHART").is_some() {
            // The file has the text exactly as kubectl writes it. `render` would parse the text.
            let output = Command::new("kubectl")
                .arg("kustomize")
                .arg(manifests_root().join(name))
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{name}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            fs::write(&file, &output.stdout).unwrap();
        }

        let kept = documents(&fs::read_to_string(&file).unwrap()).unwrap();
        let rendered = render(&manifests_root().join(name)).unwrap();
        assert_eq!(
            kept, rendered,
            "shapes/{name}.yaml is out of date: regenerate it with UPDATE_CHART=1"
        );
    }

    let component = fs::read_to_string(manifests_root().join("components/pods/rbac.yaml")).unwrap();
    let file = chart().join("shapes/rbac-pods.yaml");
    if std::env::var_os("UPDATE_CHART").is_some() {
        fs::write(&file, &component).unwrap();
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), component);
}

#[test]
fn each_shape_installs_its_objects() {
    if is_helm_missing() {
        return;
    }
    for name in SHAPES {
        let shape = format!("shape=\"{name}\"");
        // The shape trial has no ConfigMap of its own.
        let create = format!("configMap.create={}", *name != "trial");
        let objects = installed(&[&shape, &create]);
        let shape = fs::read_to_string(chart().join(format!("shapes/{name}.yaml"))).unwrap();
        let mut unlike = difference::paths(&objects, &documents(&shape).unwrap());
        if *name == "ha" {
            // The chart sets no number of replicas, so that an upgrade keeps the number that the
            // autoscaler has set.
            assert!(unlike.remove("Deployment/kube-dns.spec.replicas"));
        }
        assert_eq!(unlike, BTreeSet::new(), "{name}");
    }
}

#[test]
fn chart_passes_helm_lint() {
    if is_helm_missing() {
        return;
    }
    let output = helm(&["lint", "--strict"]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

/// A value of the chart, the field that it sets in the pod, and the JSON of that field.
const POD_VALUES: &str = r#"
    image.repository="registry.example/dns"                | /containers/0/image           | "registry.example/dns/kubedns:VERSION"
    image.repository="registry.example:5000/dns"           | /containers/1/image           | "registry.example:5000/dns/nanny:VERSION"
    image.tag="1.2.3"                                      | /containers/2/image           | "kube-dns-rs/sidecar:1.2.3"
    image.pullPolicy="Always"                              | /containers/1/imagePullPolicy | "Always"
    image.pullSecrets=["mine"]                             | /imagePullSecrets             | [{"name": "mine"}]
    clusterDomain="k8s.example"                            | /containers/0/args/0          | "--domain=k8s.example."
    kubedns.args=["--pods=disabled"]                       | /containers/0/args/4          | "--pods=disabled"
    dnsmasq.nannyArgs=["-v=4"]                             | /containers/1/args/3          | "-v=4"
    dnsmasq.args=["--log-queries"]                         | /containers/1/args/12         | "--log-queries"
    sidecar.args=["--v=4"]                                 | /containers/2/args/3          | "--v=4"
    sidecar.resources={"limits":{"memory":"20Mi"}}         | /containers/2/resources       | {"limits": {"memory": "20Mi"}}
    nodeSelector={"dns":"yes"}                             | /nodeSelector                 | {"dns": "yes", "kubernetes.io/os": "linux"}
    tolerations=[{"operator":"Exists"}]                    | /tolerations/1                | {"operator": "Exists"}
    priorityClassName="mine"                               | /priorityClassName            | "mine"
    affinity={"podAntiAffinity":{}}                        | /affinity                     | {"podAntiAffinity": {}}
    extraVolumes=[{"name":"ca","configMap":{"name":"ca"}}] | /volumes/1                    | {"name": "ca", "configMap": {"name": "ca"}}
    kubedns.extraVolumeMounts=[{"name":"kube-dns-config","mountPath":"/mine"}] | /containers/0/volumeMounts/1  | {"name": "kube-dns-config", "mountPath": "/mine"}
"#;

/// Checks that values of the chart set a field of an object, and that all objects stay valid.
/// Blanks separate the values.
fn check_value(shape: &str, value: &str, object: &str, pointer: &str, expected: &str) {
    let shape = format!("shape=\"{shape}\"");
    let values: Vec<&str> = [shape.as_str()]
        .into_iter()
        .chain(value.split(' '))
        .collect();
    let objects = installed(&values);
    let expected: Value = serde_json::from_str(expected).unwrap();
    let found = find(&objects, object).pointer(pointer);
    assert_eq!(found, Some(&expected), "{value}");
    for object in &objects {
        assert_eq!(schema::check(object), Ok(()), "{value}: {}", label(object));
    }
}

fn find<'o>(objects: &'o [Value], wanted: &str) -> &'o Value {
    let mut found = objects.iter().filter(|object| label(object) == wanted);
    found.next().unwrap()
}

#[test]
fn pod_values_do_what_they_say() {
    if is_helm_missing() {
        return;
    }
    let values = POD_VALUES.replace("VERSION", env!("CARGO_PKG_VERSION"));
    for [value, pointer, expected] in table::rows(&values) {
        let pointer = format!("/spec/template/spec{pointer}");
        check_value("base", value, "Deployment/kube-dns", &pointer, expected);
    }
}

/// Values of the chart, the object and the field that they set, and the JSON of that field.
const OBJECT_VALUES: &str = r#"
    clusterIP="10.0.0.10"        | Service/kube-dns          | /spec/clusterIP                       | "10.0.0.10"
    replicas=3                   | Deployment/kube-dns       | /spec/replicas                        | 3
    replicas=0                   | Deployment/kube-dns       | /spec/replicas                        | 0
    podAnnotations={"a":"b"}     | Deployment/kube-dns       | /spec/template/metadata/annotations/a | "b"
    configMap={"create":true,"data":{"upstreamNameservers":"[\"1.1.1.1\"]"}} | ConfigMap/kube-dns        | /data/upstreamNameservers             | "[\"1.1.1.1\"]"
    rbac.pods=true               | ClusterRole/kube-dns-pods | /rules/0/resources/0                  | "pods"
    secondaryClusterIP="fd00::a" | Service/kube-dns          | /spec/clusterIPs                      | ["10.96.0.10", "fd00::a"]
    secondaryClusterIP="fd00::a" | Service/kube-dns          | /spec/ipFamilyPolicy                  | "RequireDualStack"
    networkPolicy.create=true    | NetworkPolicy/kube-dns    | /spec                                 | {"podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}, "policyTypes": ["Ingress"], "ingress": [{"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}]}
    clusterIP="fd00::"           | Service/kube-dns          | /spec/clusterIP                       | "fd00::"
    rbac.extraRules=[{"apiGroups":[""],"resources":["nodes"],"verbs":["list"]}] | ClusterRole/kube-dns-extra        | /rules                 | [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
    rbac.extraRules=[{"apiGroups":[""],"resources":["nodes"],"verbs":["list"]}] | ClusterRoleBinding/kube-dns-extra | /roleRef/name          | "kube-dns-extra"
    networkPolicy={"create":true} kubedns.args=["--transfer-to=192.0.2.53"] | NetworkPolicy/kube-dns    | /spec/ingress/0/ports/2               | {"port": 10053, "protocol": "UDP"}
    networkPolicy={"create":true} kubedns.args=["-transfer_to=192.0.2.53"]  | NetworkPolicy/kube-dns    | /spec/ingress/0/ports/3               | {"port": 10053, "protocol": "TCP"}
    networkPolicy={"create":true} kubedns.args=["--transfer-to=192.0.2.53","--dns-port=53"] | NetworkPolicy/kube-dns | /spec/ingress/0/ports  | [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
    networkPolicy={"create":true} kubedns.args=["--transfer-to=192.0.2.53","--transfer-to="] | NetworkPolicy/kube-dns | /spec/ingress/0/ports | [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
    networkPolicy={"create":true,"metricsFrom":[{"namespaceSelector":{}}]} | NetworkPolicy/kube-dns    | /spec/ingress/1/from                  | [{"namespaceSelector": {}}]
"#;

#[test]
fn object_values_set_intended_fields() {
    if is_helm_missing() {
        return;
    }
    for [value, object, pointer, expected] in table::rows(OBJECT_VALUES) {
        check_value("hardened", value, object, pointer, expected);
    }
}

#[test]
fn default_values_install_no_config_map() {
    if is_helm_missing() {
        return;
    }
    let labels: BTreeSet<String> = installed(&[]).iter().map(label).collect();
    let expected = [
        "ClusterRole/kube-dns-rs",
        "ClusterRoleBinding/kube-dns-rs",
        "Deployment/kube-dns",
        "Service/kube-dns",
        "ServiceAccount/kube-dns",
    ];
    assert_eq!(labels, BTreeSet::from(expected.map(str::to_owned)));
}

/// A value of the chart, the field that it sets in the pod of the cache, and the JSON of that
/// field.
const NODE_CACHE_VALUES: &str = r#"
    nodeLocal.image="mirror.example/cache:1"          | /containers/0/image     | "mirror.example/cache:1"
    nodeLocal.args=["-v=2"]                           | /containers/0/args/6    | "-v=2"
    nodeLocal.resources={"limits":{"memory":"50Mi"}}  | /containers/0/resources | {"limits": {"memory": "50Mi"}}
    clusterIP="10.0.0.10"                             | /containers/0/args/1    | "169.254.20.10,10.0.0.10"
    image.pullSecrets=["mine"]                        | /imagePullSecrets       | [{"name": "mine"}]
    image.pullPolicy="Always"                         | /containers/0/imagePullPolicy | "Always"
"#;

/// Some values of kube-dns apply to the cache on the nodes, too: `clusterIP`, `clusterDomain`,
/// `image.pullPolicy` and `image.pullSecrets`.
#[test]
fn values_change_objects_of_node_cache() {
    if is_helm_missing() {
        return;
    }
    for [value, pointer, expected] in table::rows(NODE_CACHE_VALUES) {
        let pointer = format!("/spec/template/spec{pointer}");
        check_value(
            "nodelocal",
            value,
            "DaemonSet/node-local-dns",
            &pointer,
            expected,
        );
    }

    let objects = installed(&["shape=\"nodelocal\"", "clusterDomain=\"k8s.example\""]);
    let config_map = find(&objects, "ConfigMap/node-local-dns");
    assert!(
        config_map["data"]["Corefile"]
            .as_str()
            .unwrap()
            .starts_with("k8s.example:53 {")
    );
}

/// A new key of the ConfigMap must get into the schema of the chart, too.
#[test]
fn schema_has_documented_keys_of_config_map() {
    let text = fs::read_to_string(chart().join("values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    let accepted = schema
        .pointer("/properties/configMap/properties/data/propertyNames/enum")
        .unwrap();
    let page = Page::read("configmap.md");
    let rows = page.rows("Keys", &["key", "value", "what it does"]);
    let documented: Vec<&str> = rows.iter().map(|row| code(&row[0])).collect();
    assert_eq!(*accepted, serde_json::json!(documented));
}

#[test]
fn autoscaler_example_can_scale_the_deployment() {
    let example = fs::read_to_string(chart().join("examples/hpa.yaml")).unwrap();
    let [autoscaler] = documents(&example).unwrap().try_into().unwrap();
    assert_eq!(schema::check(&autoscaler), Ok(()));

    let shape = fs::read_to_string(chart().join("shapes/hardened.yaml")).unwrap();
    let target = &autoscaler["spec"]["scaleTargetRef"];
    let name = format!(
        "{}/{}",
        target["kind"].as_str().unwrap(),
        target["name"].as_str().unwrap()
    );
    let shape = documents(&shape).unwrap();
    let deployment = find(&shape, &name);
    let replicas = deployment.pointer("/spec/replicas");
    assert_eq!(
        replicas, None,
        "only the autoscaler may set the number of replicas"
    );
    for container in deployment
        .pointer("/spec/template/spec/containers")
        .unwrap()
        .as_array()
        .unwrap()
    {
        // The autoscaler compares the CPU usage of the containers with their CPU requests.
        assert!(
            container.pointer("/resources/requests/cpu").is_some(),
            "{container}"
        );
    }
}

/// Checks that the chart refuses the values in each row of `mistakes`. Blanks separate the values.
/// The second column is a part of the expected error.
fn assert_refused(mistakes: &str) {
    for [values, expected] in table::rows(mistakes) {
        let set = values.split(' ').flat_map(|value| ["--set-json", value]);
        let output = helm(&["template"].into_iter().chain(set).collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(expected),
            "{values}: {said}"
        );
    }
}

/// Valid values that do not fit the shape or the other values, each with its error.
const MISPLACED: &str = r#"
    configMap.data={"stubDomains":"{}"}                         | configMap.data has no effect without configMap.create: the ConfigMap stays as it is in the cluster
    shape="node" replicas=3                                     | replicas: the shape node has a pod on each node
    shape="ha" replicas=3                                       | replicas: the autoscaler of the shape ha sets the number
    shape="trial" clusterIP="10.0.0.10"                         | clusterIP: the shape trial has no Service
    shape="trial" configMap.create=true                         | configMap.create: the shape trial has no ConfigMap, because it uses the ConfigMap of the cluster
    shape="alone" dnsmasq.args=["--log-queries"]                | dnsmasq.args: the shape alone has no container dnsmasq
    shape="alone" dnsmasq.nannyArgs=["-v=4"]                    | dnsmasq.nannyArgs: the shape alone has no container dnsmasq
    shape="alone" dnsmasq.resources={"limits":{}}               | dnsmasq.resources: the shape alone has no container dnsmasq
    nodeLocal.image="a"                                         | nodeLocal.image: the shape hardened has no cache on the nodes
    nodeLocal.args=["-a"]                                       | nodeLocal.args: the shape hardened has no cache on the nodes
    shape="nodelocal" clusterIP="fd00::a"                       | clusterIP: the cache of the shape nodelocal needs an IPv4 address
    kubedns.args=["--pods=verified"]                            | kubedns.args: --pods=verified needs rbac.pods=true, because the shape hardened does not let kubedns list and watch pods
    kubedns.args=["-pods=verified"]                             | kubedns.args: --pods=verified needs rbac.pods=true
    kubedns.args=["--pods=insecure","--pods=verified"]          | kubedns.args: --pods=verified needs rbac.pods=true
    kubedns.args=["--pods=node"]                                | kubedns.args: --pods=node needs rbac.pods=true
    kubedns.args=["--namespace_selector=team=a"]                | kubedns.args: --namespace-selector=team=a needs a rule in rbac.extraRules: {apiGroups: [""], resources: [namespaces], verbs: [list, watch]}, because the shape hardened does not let
    kubedns.args=["--prefer-zone=auto"]                         | kubedns.args: --prefer-zone=auto needs a rule in rbac.extraRules: {apiGroups: [""], resources: [nodes]
    shape="ha" kubedns.args=["--prefer-zone=hints"]             | kubedns.args: --prefer-zone=hints needs a rule in rbac.extraRules: {apiGroups: [""], resources: [nodes]
    shape="stock-1.36" kubedns.args=["--prefer-zone=eu-1a"]     | kubedns.args: --prefer-zone=eu-1a needs a rule in rbac.extraRules: {apiGroups: ["discovery.k8s.io"], resources: [endpointslices]
    shape="stock-1.36" kubedns.args=["--zonal-names"]           | kubedns.args: --zonal-names=true needs a rule
    shape="trial" kubedns.args=["--endpoints-source=endpointslices"] | kubedns.args: --endpoints-source=endpointslices needs a rule
    kubedns.args=["--clusterset-domain=clusterset.local"]       | kubedns.args: --clusterset-domain=clusterset.local needs a rule in rbac.extraRules: {apiGroups: ["multicluster.x-k8s.io"], resources: [serviceimports]
    kubedns.args=["--namespace-selector=a"] rbac.extraRules=[{"apiGroups":[""],"resources":["namespaces"],"verbs":["list"]}] | --namespace-selector=a needs a rule
    kubedns.args=["--namespace-selector=a"] rbac.extraRules=[{"apiGroups":["apps"],"resources":["namespaces"],"verbs":["*"]}] | --namespace-selector=a needs a rule
    kubedns.args=["--config-map=kube-dns"]                      | kubedns.args: --config-map=kube-dns and --config-dir=/kube-dns-config of the shape hardened exclude each other; add --config-dir= to use the ConfigMap
    kubedns.args=["--config-map=kube-dns","--config-dir="]      | kubedns.args: --config-map=kube-dns needs a rule in rbac.extraRules: {apiGroups: [""], resources: [configmaps]
    kubedns.args=["--daemonset=kube-system/kube-dns"]           | kubedns.args: --daemonset=kube-system/kube-dns: the shape hardened has no DaemonSet of kube-dns
    shape="node" rbac.pods=true                                 | rbac.pods: the shape node lets kubedns watch pods anyway
    shape="node" tolerations=[{"operator":"Exists"}]            | tolerations: the pods of the shape node tolerate every taint anyway
    shape="nodelocal" secondaryClusterIP="fd00::a"              | secondaryClusterIP: the Service of the shape nodelocal cannot have two addresses
    secondaryClusterIP="10.0.0.1"                               | secondaryClusterIP: 10.0.0.1 and clusterIP 10.96.0.10 are of the same IP family
    networkPolicy.metricsFrom=[{"namespaceSelector":{}}]        | networkPolicy.metricsFrom has no effect without networkPolicy.create
    kubedns.extraVolumeMounts=[{"name":"ca","mountPath":"/ca"}] | kubedns.extraVolumeMounts: there is no volume ca; add it to extraVolumes
    extraVolumes=[{"name":"kube-dns-config","emptyDir":{}}]     | extraVolumes: there is already a volume kube-dns-config
"#;

#[test]
fn misplaced_value_is_rejected_with_reason() {
    if is_helm_missing() {
        return;
    }
    assert_refused(MISPLACED);
}

/// Values that the chart accepts, although it refuses similar values in `MISPLACED` or `WRONG`.
const FITTING: &str = r#"
    kubedns.args=["--pods=verified","--pods=insecure"]
    kubedns.args=["--pods=verified"] rbac.pods=true
    kubedns.args=["--pods=verified"] rbac.extraRules=[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]
    shape="node" kubedns.args=["--pods=verified","--prefer-zone=auto"]
    kubedns.args=["--prefer-zone=eu-1a","--zonal-names"]
    shape="stock-1.36" kubedns.args=["--zonal-names=false"]
    kubedns.args=["--namespace-selector=team=a"] rbac.extraRules=[{"apiGroups":[""],"resources":["namespaces"],"verbs":["list","watch"]}]
    kubedns.args=["--namespace-selector=team=a","--kubecfg-file=/key/config"]
    kubedns.args=["--clusterset-domain=clusterset.local"] rbac.extraRules=[{"apiGroups":["multicluster.x-k8s.io"],"resources":["serviceimports"],"verbs":["list","watch"]}]
    kubedns.args=["--config-map=dns","--config-dir="] rbac.extraRules=[{"apiGroups":[""],"resources":["configmaps"],"resourceNames":["dns"],"verbs":["list","watch"]}]
    kubedns.args=["--config-map="]
    configMap={"create":true,"data":{"rebindProtection":"{}","bogusPriv":"true"}}
    clusterIP="2001:db8:0:1:2:3:4:a"
    secondaryClusterIP="fd00::1:a"
    tolerations=[{"key":"a","operator":"Equal","value":"b","effect":"NoExecute","tolerationSeconds":5}]
    kubedns.resources={"limits":{"memory":"1.5Gi","cpu":"2"},"requests":{"memory":"64Mi","cpu":"100m","ephemeral-storage":"1e6"}}
    affinity={"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"arch","operator":"In","values":["amd64"]}]}]}}}
    affinity={"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":{"matchFields":[{"key":"metadata.name","operator":"NotIn","values":["a"]}]}}]}}
    affinity={"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":100,"podAffinityTerm":{"topologyKey":"zone","labelSelector":{"matchLabels":{"k8s-app":"kube-dns"}}}}]}}
    affinity={"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone","namespaces":[],"matchLabelKeys":["a"]}]}}
    networkPolicy.create=true networkPolicy.metricsFrom=[{"namespaceSelector":{"matchLabels":{"a":"b"}}},{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}]
"#;

#[test]
fn fitting_value_is_accepted() {
    if is_helm_missing() {
        return;
    }
    for [values] in table::rows(FITTING) {
        for object in installed(&values.split(' ').collect::<Vec<_>>()) {
            assert_eq!(schema::check(&object), Ok(()), "{values}");
        }
    }
}

/// Without `NODE_NAME`, kubedns does not start with these flags. Only the manifests of the shape
/// `node` set this variable. For the other shapes, the chart adds it if a flag needs it.
#[test]
fn kubedns_gets_node_name_for_flags_that_need_it() {
    if is_helm_missing() {
        return;
    }
    let rules = r#"rbac.extraRules=[{"apiGroups":[""],"resources":["nodes","pods"],"verbs":["list","watch"]}]"#;
    for flag in ["--prefer-zone=auto", "-prefer_zone=hints", "--pods=node"] {
        let value = format!(r#"{rules} kubedns.args=["{flag}"]"#);
        let expected =
            r#"{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}"#;
        let pointer = "/spec/template/spec/containers/0/env/1";
        check_value("hardened", &value, "Deployment/kube-dns", pointer, expected);
    }
}

/// Wrong values, each with a name or path that the error must contain.
const WRONG: &str = r#"
    shape="fast"                                             | shape
    clusterDomain="cluster.local."                           | clusterDomain
    clusterIP="dns"                                          | clusterIP
    clusterIP="999.1.1.1"                                    | clusterIP
    clusterIP="10.0.0.10."                                   | clusterIP
    clusterIP=":::"                                          | clusterIP
    clusterIP="1:2:3:4:5:6:7::8"                             | clusterIP
    clusterIP=""                                             | clusterIP
    secondaryClusterIP="fd00:a"                              | secondaryClusterIP
    replicas=-1                                              | replicas
    kubedns.arg=["--v=4"]                                    | arg
    kubedns=null                                             | missing property 'kubedns'
    sidecar.args=null                                        | missing property 'args'
    sidecar.args=["v=4"]                                     | sidecar/args
    configMap.data={"stubDomains":{}}                        | configMap/data/stubDomains
    configMap.data={"stubDomain":"{}"}                       | stubDomain
    image.pullPolicy="Sometimes"                             | image/pullPolicy
    affinity={"podAffinities":{}}                            | podAffinities
    affinity={"podAffinity":{"required":[]}}                 | affinity/podAffinity
    affinity={"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[]}}              | nodeAffinity/required
    affinity={"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topology":"a"}]}} | podAffinity/required
    affinity={"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":0,"podAffinityTerm":{"topologyKey":"a"}}]}} | weight
    kubedns.resources={"limits":{"memory":"64MB"}}           | kubedns/resources/limits/memory
    kubedns.resources={"limits":"64Mi"}                      | kubedns/resources/limits
    sidecar.resources={"requests":{"cpu":"-1"}}              | sidecar/resources/requests/cpu
    extraVolumes=[{"name":"a"}]                              | extraVolumes/0
    extraVolumes=[{"secret":{},"emptyDir":{}}]               | extraVolumes/0
    extraVolumes=[{"name":"a","secrt":{}}]                   | secrt
    extraVolumes=[{"name":"a","secret":{},"emptyDir":{}}]    | extraVolumes/0
    tolerations=[{"foo":"bar"}]                              | foo
    rbac.extraRules=[{"apiGroups":[""],"verbs":["list"]}]    | rbac/extraRules/0
    sidecar.extraVolumeMounts=[{"name":"a","mountPath":"a"}] | sidecar/extraVolumeMounts/0
    networkPolicy.metricsFrom=[{"pods":{}}]                  | pods
    networkPolicy.metricsFrom=[{"podSelector":{"app":"a"}}]  | podSelector
    networkPolicy.metricsFrom=[{"ipBlock":{"cidr":"10.0.0.0/8","without":[]}}] | ipBlock
    secondaryClusterIP="dns"                                 | secondaryClusterIP
    nodeLocal.tag="1"                                        | tag
"#;

#[test]
fn error_names_wrong_value() {
    if is_helm_missing() {
        return;
    }
    assert_refused(WRONG);
}
