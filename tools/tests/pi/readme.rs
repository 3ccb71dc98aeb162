//! The example in README, as it stands there.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{finish, folder, text};

#[test]
fn the_example_in_readme_does_what_it_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = std::fs::read_to_string(root.join("README.md")).expect("README.md stands at the root");
    let (_, rest) = readme.split_once("## Images and their protection information\n").expect("the chapter");
    let lines: Vec<&str> = rest.lines().skip_while(|line| !line.starts_with("    ")).collect();
    let lines = lines.iter().map_while(|line| line.strip_prefix("    "));
    // Where it is run the programs are elsewhere, the vectors too, and measurements take long.
    let (place, example): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("export PATH="));
    assert!(place.len() == 1 && place[0].contains("$PWD/build/release:"), "{place:?}");
    let programs = Path::new(env!("CARGO_BIN_EXE_intact-pi")).parent().expect("programs stand in a folder");
    let vectors = root.join("pi/tests/data/vectors.jsonl");
    let mut finds = 0;
    let (folder, _) = folder(0, 512);
    for line in example {
        let quick = line.replace("bench", "bench --case raw --rounds 1 --milliseconds 1");
        let line = quick.replace("pi/tests/data/vectors.jsonl", vectors.to_str().expect("a name"));
        let child = Command::new("sh")
            .args(["-c", &format!("PATH=\"{}:$PATH\"\n{line}", programs.display())])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let (status, text) = text(finish(child));
        let expected = i32::from(line.contains("# finds it"));
        assert_eq!(status, expected, "{line}: {text}");
        finds += expected;
    }
    assert_eq!(finds, 1, "the damage is found");
}
