//! Refuses to build when Cargo's output would land inside this crate's own folder.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let (Some(manifest), Some(out)) = (std::env::var_os("CARGO_MANIFEST_DIR"), std::env::var_os("OUT_DIR"))
    else {
        println!(
            "cargo::error=this build script runs under Cargo, which sets CARGO_MANIFEST_DIR and OUT_DIR"
        );
        return;
    };
    if Path::new(&out).starts_with(&manifest) {
        println!(
            "cargo::error=Cargo's output folder lies inside the crate `target/`, where `cargo clean` would delete \
             its sources; run Cargo from inside the repository (.cargo/config.toml sets build.target-dir) or set \
             CARGO_TARGET_DIR elsewhere"
        );
    }
}
