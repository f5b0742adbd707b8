use super::*;

fn faults() -> Faults {
    Faults::new(Store::default())
}

fn request(verb: Verb, resource: Resource) -> Request<'static> {
    Request { verb, resource, namespace: "", name: "", authorization: None }
}

fn code(faults: &Faults, verb: Verb, resource: Resource) -> Option<u16> {
    faults.admit(&request(verb, resource)).refusal.map(|status| status.code())
}

#[test]
fn the_stock_role_grants_two_verbs_on_two_resources() {
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
        assert_eq!(code(&faults, verb, resource), expected, "{verb:?} {resource}");
    }
    faults.clear();
    assert_eq!(code(&faults, Verb::Get, Resource::Services), None);
}

#[test]
fn refusals_read_like_those_of_a_real_server() {
    let faults = faults();
    faults.forbid(Resource::ConfigMaps);
    faults.forbid(Resource::EndpointSlices);
    let one =
        Request { namespace: "kube-system", name: "kube-dns", ..request(Verb::Get, Resource::ConfigMaps) };
    assert_eq!(
        faults.admit(&one).refusal.unwrap().to_string(),
        "configmaps \"kube-dns\" is forbidden: User \"system:serviceaccount:kube-system:kube-dns\" cannot get resource \"configmaps\" in API group \"\" in the namespace \"kube-system\""
    );
    assert_eq!(
        faults.admit(&request(Verb::Watch, Resource::EndpointSlices)).refusal.unwrap().to_string(),
        "endpointslices.discovery.k8s.io is forbidden: User \"system:serviceaccount:kube-system:kube-dns\" cannot watch resource \"endpointslices\" in API group \"discovery.k8s.io\" at the cluster scope"
    );
}

#[test]
fn rules_count() {
    let faults = faults();
    faults.add(Rule::new(Action::Refuse { code: 500 }).verbs([Verb::List]).skip(1).times(2));
    let codes: Vec<_> = (0..5).map(|_| code(&faults, Verb::List, Resource::Services)).collect();
    assert_eq!(codes, [None, Some(500), Some(500), None, None]);
}

#[test]
fn one_request_in_so_many_goes_wrong() {
    let faults = faults();
    let rule = Rule::new(Action::Refuse { code: 503 }).verbs([Verb::List]);
    faults.add(rule.skip(1).every(3).times(2));
    let failed: Vec<usize> =
        (1..=12).filter(|_| code(&faults, Verb::List, Resource::Services).is_some()).collect();
    assert_eq!(failed, [4, 7]);
}

#[test]
fn a_rule_lasts_as_long_as_it_says() {
    for (lasting, expected) in [(Duration::ZERO, None), (Duration::from_hours(1), Some(403))] {
        let faults = faults();
        faults.reboot(lasting);
        assert_eq!(code(&faults, Verb::List, Resource::Services), expected, "{lasting:?}");
        assert_eq!(code(&faults, Verb::Get, Resource::ConfigMaps), expected, "{lasting:?}");
    }
}

#[test]
fn tokens_are_looked_at() {
    let faults = faults();
    faults.require_token(Some("secret"));
    let with = |authorization| {
        let request = Request { authorization, ..request(Verb::List, Resource::Services) };
        faults.admit(&request).refusal.map(|status| (status.code(), status.to_string()))
    };
    assert_eq!(with(Some("Bearer secret")), None);
    assert_eq!(with(Some("Bearer other")), Some((401, "Unauthorized".to_owned())));
    let anonymous = "services is forbidden: User \"system:anonymous\" cannot list resource \"services\" in API group \"\" at the cluster scope";
    assert_eq!(with(None), Some((403, anonymous.to_owned())));
    assert_eq!(faults.requests().len(), 3);
}
