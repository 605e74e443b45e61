//! Checks the minimum Rust version that Cargo.toml states.
//!
//! Cargo refuses an older compiler, and the lint `incompatible_msrv` refuses newer library functions. This task checks
//! the rest: no dependency needs a newer version.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::command::{cargo, output, program};

/// The platform whose dependencies are checked.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

pub fn check() -> Result<()> {
    let metadata = output(&mut cargo(&["metadata", "--format-version", "1", "--filter-platform", PLATFORM]))?;
    let metadata = serde_json::from_str(&metadata).context("`cargo metadata` printed no JSON")?;
    let minimum = minimum(&metadata)?;
    let newer = newer_than(&metadata, minimum)?;
    ensure!(
        newer.is_empty(),
        "Cargo.toml states Rust {}, but dependencies need newer versions: {}; raise rust-version, or use older versions of them",
        shown(minimum),
        newer.join(", ")
    );
    let compiler = output(program("rustc").arg("--version"))?;
    let built_by = compiler.split(' ').nth(1).and_then(version).context("rustc names no version")?;
    let is_minimum = match built_by[..2] == minimum[..2] {
        true => "which is what compiles here",
        false => "and a newer one compiles here",
    };
    eprintln!("minimum Rust: {}, {is_minimum}", shown(minimum));
    Ok(())
}

type Version = [u64; 3];

/// Parses a version. `1.95` is `1.95.0`. A suffix after a hyphen is ignored.
fn version(text: &str) -> Option<Version> {
    let mut parts = text.split('-').next()?.split('.').map(str::parse);
    let mut version = [0; 3];
    for part in &mut version {
        *part = parts.next().unwrap_or(Ok(0)).ok()?;
    }
    Some(version)
}

fn shown([major, minor, patch]: Version) -> String {
    format!("{major}.{minor}.{patch}")
}

fn packages(metadata: &Value) -> Result<&Vec<Value>> {
    metadata["packages"].as_array().context("`cargo metadata` names no packages")
}

/// The minimum version of the workspace, which must be equal in all packages.
fn minimum(metadata: &Value) -> Result<Version> {
    let mut minimum = None;
    // Packages without a source belong to the workspace.
    for package in packages(metadata)?.iter().filter(|package| package["source"].is_null()) {
        let name = &package["name"];
        let stated = package["rust_version"].as_str().and_then(version);
        let stated = stated.with_context(|| format!("{name} states no rust-version"))?;
        if minimum.is_some_and(|minimum| minimum != stated) {
            bail!("{name} states another rust-version than the rest of the workspace");
        }
        minimum = Some(stated);
    }
    minimum.context("the workspace has no packages")
}

/// Dependencies that need a newer version.
fn newer_than(metadata: &Value, minimum: Version) -> Result<Vec<String>> {
    let newer = packages(metadata)?.iter().filter_map(|package| {
        let wanted = package["rust_version"].as_str()?;
        let is_newer = version(wanted).is_none_or(|wanted| wanted > minimum);
        is_newer.then(|| format!("{} ({wanted})", package["name"].as_str().unwrap_or_default()))
    });
    Ok(newer.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dependency_that_wants_a_newer_compiler_is_named() {
        let metadata = json!({"packages": [
            {"name": "here", "source": null, "rust_version": "1.95"},
            {"name": "old", "source": "registry", "rust_version": "1.60.1"},
            {"name": "silent", "source": "registry", "rust_version": null},
            {"name": "same", "source": "registry", "rust_version": "1.95.0"},
            {"name": "newer", "source": "registry", "rust_version": "1.96"},
        ]});
        assert_eq!(minimum(&metadata).unwrap(), [1, 95, 0]);
        assert_eq!(newer_than(&metadata, [1, 95, 0]).unwrap(), ["newer (1.96)"]);
    }

    #[test]
    fn packages_here_must_agree() {
        let packages = |stated: &[Option<&str>]| {
            let packages: Vec<_> =
                stated.iter().map(|stated| json!({"name": "p", "source": null, "rust_version": stated})).collect();
            json!({ "packages": packages })
        };
        minimum(&packages(&[Some("1.95"), Some("1.95")])).unwrap();
        minimum(&packages(&[Some("1.95"), Some("1.94")])).unwrap_err();
        minimum(&packages(&[Some("1.95"), None])).unwrap_err();
        minimum(&packages(&[])).unwrap_err();
    }
}
