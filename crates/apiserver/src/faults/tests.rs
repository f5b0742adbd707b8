use super::*;

fn faults() -> Faults {
    Faults::new(Store::default())
}

fn request(verb: Verb, resource: Resource) -> Request<'static> {
    Request {
        verb,
        resource,
        namespace: "",
        name: "",
        authorization: None,
    }
}

fn code(faults: &Faults, verb: Verb, resource: Resource) -> Option<u16> {
    faults
        .admit(&request(verb, resource))
        .refusal
        .map(|status| status.code())
}

#[test]
fn stock_role_grants_only_list_and_watch_of_services_and_endpoints() {
    let faults = faults();
    faults.kube_dns_role();
    let cases = [
        (Verb::List, Resource::Services, None),
        (Verb::Watch, Resource::Endpoints, None),
        (Verb::Get, Resource::Services, Some(403)),
        (Verb::List, Resource::EndpointSlices, Some(403)),
        (Verb::Watch, Resource::ConfigMaps, Some(403)),
        (Verb::List, Resource::Nodes, Some(403)),
    ];
    for (verb, resource, expected) in cases {
        let found = code(&faults, verb, resource);
        assert_eq!(found, expected, "{verb:?} {resource}");
    }
    faults.clear();
    assert_eq!(code(&faults, Verb::Get, Resource::Services), None);
}

#[test]
fn roles_grant_only_list_and_watch_in_their_namespaces() {
    let faults = faults();
    faults.roles_in(&["apps", "shop"]);
    for (verb, resource, namespace, expected) in [
        (Verb::List, Resource::Services, "apps", None),
        (Verb::Watch, Resource::EndpointSlices, "shop", None),
        (Verb::List, Resource::Services, "other", Some(403)),
        (Verb::List, Resource::Services, "", Some(403)),
        (Verb::Get, Resource::Services, "apps", Some(403)),
        (Verb::List, Resource::ConfigMaps, "apps", Some(403)),
    ] {
        let request = Request {
            namespace,
            ..request(verb, resource)
        };
        let refusal = faults.admit(&request).refusal;
        let found = refusal.map(|status| status.code());
        assert_eq!(found, expected, "{verb:?} {resource} in {namespace:?}");
    }
}

#[test]
fn refusal_texts_match_kube_apiserver() {
    let faults = faults();
    faults.forbid(Resource::ConfigMaps);
    faults.forbid(Resource::EndpointSlices);
    let one = Request {
        namespace: "kube-system",
        name: "kube-dns",
        ..request(Verb::Get, Resource::ConfigMaps)
    };
    assert_eq!(
        faults.admit(&one).refusal.unwrap().to_string(),
        "configmaps \"kube-dns\" is forbidden: User \"system:serviceaccount:kube-system:kube-dns\" cannot get resource \"configmaps\" in API group \"\" in the namespace \"kube-system\""
    );
    assert_eq!(
        faults
            .admit(&request(Verb::Watch, Resource::EndpointSlices))
            .refusal
            .unwrap()
            .to_string(),
        "endpointslices.discovery.k8s.io is forbidden: User \"system:serviceaccount:kube-system:kube-dns\" cannot watch resource \"endpointslices\" in API group \"discovery.k8s.io\" at the cluster scope"
    );
}

#[test]
fn rule_skips_one_request_and_refuses_two() {
    let faults = faults();
    faults.add(
        Rule::new(Action::Refuse { code: 503 })
            .verbs([Verb::List])
            .skip(1)
            .times(2),
    );
    let failed: Vec<usize> = (1..=6)
        .filter(|_| code(&faults, Verb::List, Resource::Services).is_some())
        .collect();
    assert_eq!(failed, [2, 3]);
}
