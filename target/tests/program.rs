//! `intact` as a program: what it refuses before it does anything.

use std::process::Command;

#[test]
fn an_unknown_checksum_kernel_is_refused_rather_than_ignored() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("target.toml");
    std::fs::write(&config, "").expect("room");
    for command in ["serve", "check"] {
        let output = Command::new(env!("CARGO_BIN_EXE_intact"))
            .arg(command)
            .arg(&config)
            .env("T10PI_KERNEL", "magic")
            .output()
            .expect("intact was built");
        let text = String::from_utf8(output.stderr).expect("text");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{command}");
        let expected = "intact: T10PI_KERNEL: unknown checksum kernel \"magic\", there are avx512, avx2, pclmulqdq, portable\n";
        assert_eq!(text, expected, "{command}");
    }
}
