//! The direction of dependencies: pi <- rwctx <- target <- tools, tests; and what the fuzz targets lock.

use cargo_metadata::{DependencyKind, MetadataCommand};

#[test]
fn workspace_members_depend_only_in_the_allowed_direction() {
    let allowed = [
        ("t10pi", &[][..]),
        ("rwctx", &["t10pi"][..]),
        ("intact", &["rwctx", "t10pi"][..]),
        ("intact-tools", &["intact", "rwctx", "t10pi"][..]),
        ("intact-tests", &["intact", "intact-tools", "rwctx", "t10pi"][..]),
    ];
    let metadata = MetadataCommand::new().no_deps().exec().expect("cargo metadata runs in the workspace");
    let ours: Vec<&str> = allowed.iter().map(|(name, _)| *name).collect();
    assert_eq!(metadata.packages.len(), ours.len(), "every member has a row in this test");
    for package in &metadata.packages {
        let (_, may) = allowed
            .iter()
            .find(|(name, _)| package.name == *name)
            .unwrap_or_else(|| panic!("{} has no row in this test", package.name));
        for dependency in package.dependencies.iter().filter(|d| ours.contains(&d.name.as_str())) {
            assert!(
                may.contains(&dependency.name.as_str()),
                "{} may not depend on {}",
                package.name,
                dependency.name
            );
        }
    }
}

#[test]
fn build_output_lies_outside_the_crate_named_target() {
    let metadata = MetadataCommand::new().no_deps().exec().expect("cargo metadata runs in the workspace");
    assert_ne!(metadata.target_directory, metadata.workspace_root.join("target"));
}

/// The fuzz targets have a lock file of their own, which Cargo doesn't look at when the workspace's crates change.
#[test]
fn the_fuzz_targets_lock_what_the_workspace_needs() {
    let metadata = MetadataCommand::new().no_deps().exec().expect("cargo metadata runs in the workspace");
    let lock = std::fs::read_to_string(metadata.workspace_root.join("fuzz/Cargo.lock"));
    let lock = lock.expect("the fuzz targets have a lock file");
    let blocks: Vec<Vec<&str>> =
        lock.split("[[package]]").map(|block| block.split('"').skip(1).step_by(2).collect()).collect();
    for package in &metadata.packages {
        let name = package.name.as_str();
        // Name and version, then dependencies, with a version where there are several.
        let [_, _, locked @ ..] = &blocks
            .iter()
            .find(|block| block.first() == Some(&name))
            .unwrap_or_else(|| panic!("{name} is not in fuzz/Cargo.lock"))[..]
        else {
            panic!("{name} has no version in fuzz/Cargo.lock")
        };
        let mut locked: Vec<&str> = locked.iter().filter_map(|entry| entry.split(' ').next()).collect();
        // No fuzz target has a feature that needs more.
        let needed = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind != DependencyKind::Development && !dependency.optional);
        let mut needed: Vec<&str> = needed.map(|dependency| dependency.name.as_str()).collect();
        locked.sort_unstable();
        needed.sort_unstable();
        needed.dedup();
        let update = "run `cargo metadata --manifest-path fuzz/Cargo.toml --offline`";
        assert_eq!(locked, needed, "what {name} needs changed: {update}");
        for dependency in &package.dependencies {
            let pinned = dependency.req.to_string();
            let Some(version) =
                pinned.strip_prefix('=').filter(|_| locked.contains(&dependency.name.as_str()))
            else {
                continue;
            };
            // Build metadata behind a `+` is no part of a requirement.
            let found = blocks.iter().any(|block| {
                matches!(block[..], [name, locked, ..] if name == dependency.name
                    && locked.split('+').next() == Some(version))
            });
            assert!(found, "fuzz/Cargo.lock lacks {} {version}: {update}", dependency.name);
        }
    }
}
