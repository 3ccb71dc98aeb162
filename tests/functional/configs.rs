//! The files of `configs/`, so that examples can't rot.

use std::path::Path;

use intact::config::{Config, FileState};

#[test]
fn every_file_of_configs_is_a_valid_configuration() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let mut loaded = Vec::new();
    for entry in std::fs::read_dir(&folder).expect("configs/ stands at the root") {
        let path = entry.expect("configs/ can be listed").path();
        let text = std::fs::read(&path).expect("files of configs/ can be read");
        // Volumes' files need not exist on the machine that runs the test, nor be missing.
        let config = Config::parse(&text, &path, &|_| Ok(FileState::Regular));
        let config = config.unwrap_or_else(|errors| panic!("{errors}"));
        let exports = config.nvme.subsystems.len() + config.iscsi.targets.len();
        assert!(exports != 0, "{} exports nothing", path.display());
        loaded.push(path.file_name().expect("a file has a name").to_owned());
    }
    for file in ["minimal.toml", "quickstart.toml", "linux-host.toml", "iser.toml", "both.toml"] {
        assert!(loaded.iter().any(|name| name == file), "{file} is gone; was: {loaded:?}");
    }
}
