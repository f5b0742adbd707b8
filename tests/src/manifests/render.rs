//! Renders directories with a kustomization to YAML documents.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;

/// Directories that [`names`] leaves out. They have custom resources, and tests of their own.
const NOT_OURS: &[&str] = &["monitoring"];

/// `manifests/` of the repository.
pub fn manifests_root() -> PathBuf {
    crate::repository().join("manifests")
}

/// The sorted names of the directories with a kustomization, except `monitoring`. A user may apply
/// these directories with `kubectl apply -k`.
pub fn names() -> Vec<String> {
    let entries = fs::read_dir(manifests_root())
        .into_iter()
        .flatten()
        .flatten();
    let with_kustomization =
        entries.filter(|entry| entry.path().join("kustomization.yaml").is_file());
    let mut names: Vec<String> = with_kustomization
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.retain(|name| !NOT_OURS.contains(&name.as_str()));
    names.sort();
    names
}

/// The objects of a directory of `manifests/`. For most directories, the chart has a file with the
/// rendered objects. Reading this file saves a run of kubectl. A test of the chart compares the
/// files with the directories.
pub fn rendered(name: &str) -> Result<Vec<Value>, String> {
    let shape = format!("charts/kube-dns-rs/shapes/{name}.yaml");
    match fs::read_to_string(crate::repository().join(shape)) {
        Ok(text) => documents(&text),
        Err(_) => render(&manifests_root().join(name)),
    }
}

/// Renders a directory with `kubectl kustomize`.
pub fn render(directory: &Path) -> Result<Vec<Value>, String> {
    let output = Command::new("kubectl")
        .arg("kustomize")
        .arg(directory)
        .output()
        .map_err(|error| format!("cannot run kubectl: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "{}: {}",
            directory.display(),
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    documents(&String::from_utf8_lossy(&output.stdout))
}

/// The documents of a YAML text, without empty documents.
pub fn documents(text: &str) -> Result<Vec<Value>, String> {
    let mut all = Vec::new();
    for document in serde_norway::Deserializer::from_str(text) {
        let value = Value::deserialize(document).map_err(|error| error.to_string())?;
        if !value.is_null() {
            all.push(value);
        }
    }
    Ok(all)
}

/// Writes a `kustomization.yaml` into `directory`, and renders it. `resources` are paths below
/// `manifests/`, or files in `directory`. `components` are names below `manifests/components/`.
pub fn combine(
    directory: &Path,
    resources: &[&str],
    components: &[&str],
) -> Result<Vec<Value>, String> {
    let manifests = manifests_root()
        .canonicalize()
        .map_err(|error| error.to_string())?;
    let here = directory
        .canonicalize()
        .map_err(|error| error.to_string())?;
    // kustomize accepts only relative paths, so a path below `manifests/` goes up to `/` first.
    let up = "../".repeat(here.components().count() - 1);
    let path = |part: &str| match manifests.join(part).strip_prefix("/") {
        Ok(below) if !here.join(part).exists() => format!("{up}{}", below.display()),
        _ => part.to_owned(),
    };
    let kustomization = serde_json::json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": resources.iter().map(|part| path(part)).collect::<Vec<_>>(),
        "components": components.iter().map(|part| path(&format!("components/{part}"))).collect::<Vec<_>>(),
    });
    let file = here.join("kustomization.yaml");
    fs::write(&file, kustomization.to_string()).map_err(|error| error.to_string())?;
    render(&here)
}

/// Kind and name, such as `Deployment/kube-dns`.
pub fn label(document: &Value) -> String {
    let text = |pointer| {
        document
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or("?")
    };
    format!("{}/{}", text("/kind"), text("/metadata/name"))
}
