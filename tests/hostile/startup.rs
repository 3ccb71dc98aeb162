//! What `intact` says when it can't start: one clear sentence, and the right exit status.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output};

use intact_tests::target::program;
use tempfile::TempDir;

/// Runs `intact COMMAND FILE` to its end.
fn run(command: &str, file: &Path) -> Output {
    Command::new(program("intact")).arg(command).arg(file).output().expect("the program can be started")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("messages are text")
}

#[test]
fn configuration_mistakes_end_with_status_2_and_say_where_and_what() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("c.toml");
    let volume = "[[volume]]\nname = \"a\"\n";
    let subsystem = "[[nvme.subsystem]]\nnqn = \"nqn.2026-11.io.intact:a\"\n";
    let cases: &[(String, &str)] = &[
        ("[nvme]\nprt = 4420\n".into(), "2:1: nvme.prt: unknown key; did you mean `port`?"),
        ("[nvme\n".into(), "1:6: not valid TOML"),
        ("[nvme]\nport = 70000\n".into(), "2:8: nvme.port: must be from 1 to 65535, and is 70000"),
        (
            "[device]\naddresses = [\"nowhere\"]\n".into(),
            "2:14: device.addresses[0]: \"nowhere\" is no IP address",
        ),
        ("[reactor]\ncores = 0\n".into(), "2:9: reactor.cores: must be from 1 to 64"),
        (format!("{volume}memory = \"1GB\"\n"), "3:10: volume[0].memory: \"1GB\" has no binary unit"),
        (format!("{volume}memory = 5000\n"), "3:10: volume[0].memory: 5000 bytes are no whole number"),
        (format!("{volume}file = \"no.img\"\n"), "3:8: volume[0].file: "),
        (
            format!("{volume}memory = 4096\nprotection = {{ type = 9 }}\n"),
            "4:23: volume[0].protection.type: must be from 0 to 3",
        ),
        (subsystem.into(), "1:1: nvme.subsystem[0]: nobody may connect"),
        (
            format!("{subsystem}allow_any_host = true\nnamespace = [{{ volume = \"b\" }}]\n"),
            "4:25: nvme.subsystem[0].namespace[0].volume: there is no volume \"b\"",
        ),
    ];
    for (text, expected) in cases {
        fs::write(&file, text).unwrap();
        for command in ["check", "serve"] {
            let output = run(command, &file);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{command} {text}\n{said}");
            let place = format!("{}:{expected}", file.display());
            assert!(said.starts_with(&place), "{command}: wanted {place}\nand got {said}");
            assert_eq!(said.trim_end().lines().count(), 1, "{said}");
            assert!(output.stdout.is_empty());
        }
    }
    for command in ["check", "serve"] {
        let output = run(command, &folder.path().join("missing.toml"));
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("missing.toml: the file can't be read: "), "{}", stderr(&output));
    }
    // Many mistakes are told at once.
    fs::write(&file, "[nvme]\nport = 0\n[reactor]\ncores = 0\n").unwrap();
    assert_eq!(stderr(&run("check", &file)).trim_end().lines().count(), 2);
}

#[test]
fn what_keeps_a_target_from_starting_is_one_sentence_and_status_1() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("c.toml");
    let path = |name: &str| folder.path().join(name).display().to_string();
    // Somebody else has the port of RoCE.
    let [taken, free] = [(); 2].map(|()| super::world::addresses().to_string());
    let _taken = UdpSocket::bind((taken.as_str(), 4791)).unwrap();
    // A file with protection information that is none.
    fs::write(path("bad.img"), vec![0; 1 << 20]).unwrap();
    fs::write(path("bad.img.pi"), vec![0x55; 64 << 10]).unwrap();
    // One without any.
    fs::write(path("bare.img"), vec![0; 1 << 20]).unwrap();
    // Protection information of another geometry can't be made here: a cut one can.
    fs::write(path("cut.img"), vec![0; 1 << 20]).unwrap();
    fs::write(path("cut.img.pi"), b"INTACTPI").unwrap();
    let device = |address: &str| format!("[device]\naddress = \"{address}\"\n");
    let volume = |file: &str, more: &str| {
        format!("{}[[volume]]\nname = \"a\"\nfile = \"{}\"\n{more}", device(&free), path(file))
    };
    let protected = "protection.type = 1\n";
    let cases: &[(String, &[&str])] = &[
        (device(&taken), &[&taken, "4791"]),
        (device("192.0.2.77"), &["192.0.2.77"]),
        (volume("bad.img", protected), &["bad.img.pi", "INTACTPI"]),
        (volume("cut.img", protected), &["cut.img.pi", "truncated"]),
        (volume("bare.img", protected), &["bare.img", "intact-pi generate"]),
        (
            format!("{}[metrics]\naddress = \"192.0.2.77:9420\"\n", device(&free)),
            &["metrics", "192.0.2.77:9420"],
        ),
        (format!("{}[reactor]\ncores = [1023]\n", device(&free)), &["CPU 1023"]),
    ];
    for (text, expected) in cases {
        fs::write(&file, text).unwrap();
        let output = run("serve", &file);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{text}\n{said}");
        assert!(output.stdout.is_empty(), "nothing is ready");
        // Log lines may stand before it.
        let last = said.trim_end().lines().last().unwrap();
        assert!(last.starts_with("intact: "), "{said}");
        for word in *expected {
            assert!(last.contains(word), "{word} is missing in: {said}");
        }
        assert!(!said.contains("panicked"), "{said}");
    }
}
