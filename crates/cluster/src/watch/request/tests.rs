use super::*;

/// The paths and queries of the list requests for the collections in scope.
fn paths(kind: Kind, scope: &Scope) -> Vec<String> {
    let path = |collection: &Collection| {
        let list = collection.list_parameters(&ListExtent::Page {
            limit: 1,
            token: None,
        });
        let request = collection
            .path_request()
            .list(&ListParams {
                limit: None,
                ..list
            })
            .unwrap();
        request.uri().to_string()
    };
    Collection::in_scope(kind, scope).iter().map(path).collect()
}

#[test]
fn imported_slices_have_their_own_selector() {
    let services = Some("tier=x".to_owned());
    let scope = Scope {
        namespaces: Namespaces::Only(vec!["a".into()]),
        services,
    };
    let slices = "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices\
                  ?&labelSelector=multicluster.kubernetes.io%2Fservice-name";
    assert_eq!(paths(Kind::ImportedSlice, &scope), [slices]);
    let imports = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/a/serviceimports?";
    assert_eq!(paths(Kind::ServiceImport, &scope), [imports]);
}

#[test]
fn pods_at_address_are_selected_by_field() {
    let path = |collection: &Collection| {
        let request = collection
            .path_request()
            .list(&collection.list_parameters(&ListExtent::Cached("0".to_owned())))
            .unwrap();
        unescaped(&request.uri().to_string())
    };
    let running = "status.phase!=Succeeded,status.phase!=Failed&resourceVersion=0";
    let only = Namespaces::Only(vec!["a".into(), "b".into()]);
    for (namespaces, address, paths) in [
        (Namespaces::All, "fd00::1", vec!["/api/v1/pods"]),
        (
            Namespaces::Selected("team=a".to_owned()),
            "10.0.0.1",
            vec!["/api/v1/pods"],
        ),
        (
            only,
            "10.0.0.1",
            vec!["/api/v1/namespaces/a/pods", "/api/v1/namespaces/b/pods"],
        ),
    ] {
        let scope = Scope {
            namespaces,
            services: Some("tier=x".to_owned()),
        };
        let found = Collection::pods_at(address.parse().unwrap(), &scope);
        let found: Vec<String> = found.iter().map(path).collect();
        let expected =
            |path: &&str| format!("{path}?&fieldSelector=status.podIP={address},{running}");
        assert_eq!(found, paths.iter().map(expected).collect::<Vec<_>>());
    }
}

/// A URI without escapes.
fn unescaped(uri: &str) -> String {
    percent_encoding::percent_decode_str(uri)
        .decode_utf8()
        .unwrap()
        .into_owned()
}

#[test]
fn scope_determines_paths_and_selectors() {
    let only = |names: &[&str]| Namespaces::Only(names.iter().map(|name| (*name).into()).collect());
    let scope = |namespaces, services: Option<&str>| Scope {
        namespaces,
        services: services.map(str::to_owned),
    };
    let selected = || Namespaces::Selected("team=a".to_owned());
    let all_labelled = scope(Namespaces::All, Some("tier=x"));
    let labelled_in_a = scope(only(&["a"]), Some("tier=x"));
    let labels_in_a = "namespaces/a/services?&labelSelector=tier%3Dx";
    let running = "pods?&fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed";
    let of_team = "namespaces?&labelSelector=team%3Da";
    for (what, scope, kind, expected) in [
        ("all", Scope::default(), Kind::Service, "services?"),
        (
            "labels in one namespace",
            labelled_in_a,
            Kind::Service,
            labels_in_a,
        ),
        (
            "the labels of Services do not select Endpoints",
            all_labelled,
            Kind::Endpoints,
            "endpoints?",
        ),
        (
            "the labels of namespaces do not select Services",
            scope(selected(), None),
            Kind::Service,
            "services?",
        ),
        (
            "selected namespaces",
            scope(selected(), None),
            Kind::Namespace,
            of_team,
        ),
        ("pods that run", Scope::default(), Kind::Pod, running),
    ] {
        assert_eq!(
            paths(kind, &scope),
            [format!("/api/v1/{expected}")],
            "{what}"
        );
    }

    let each = ["a", "b"].map(|namespace| {
        format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?")
    });
    let two = scope(only(&["a", "b"]), None);
    assert_eq!(paths(Kind::EndpointSlice, &two), each);
}
