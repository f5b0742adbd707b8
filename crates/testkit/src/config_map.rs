//! Edits of a mounted `ConfigMap`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Writes `files` into a new directory and points the link `..data` to that directory, as a kubelet
/// does.
pub fn swap(directory: &Path, generation: u32, files: &[(&str, &str)]) {
    replace(directory, generation, files).expect("the files of a ConfigMap can be written");
}

fn replace(directory: &Path, generation: u32, files: &[(&str, &str)]) -> std::io::Result<()> {
    let name = format!("..gen{generation}");
    fs::create_dir(directory.join(&name))?;
    for (key, value) in files {
        fs::write(directory.join(&name).join(key), value)?;
    }
    symlink(name, directory.join("..data_tmp"))?;
    fs::rename(directory.join("..data_tmp"), directory.join("..data"))?;
    for (key, _) in files {
        let link = directory.join(key);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(key), link)?;
        }
    }
    // Removes links of keys that no longer exist.
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_symlink() && !path.exists() {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
