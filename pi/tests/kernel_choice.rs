//! The environment variable that forces a checksum kernel: honoured, and harmless when it is wrong.

use std::env;
use std::process::Command;

use t10pi::Kernel;
use t10pi::crc::ENV;

/// Set for the process that only prints its choice.
const CHILD: &str = "T10PI_TEST_PRINTS_KERNEL";

#[test]
fn the_environment_forces_a_kernel_and_a_wrong_name_falls_back_to_the_fastest() {
    if env::var_os(CHILD).is_some() {
        println!("\nactive={} valid={}", Kernel::active().name(), Kernel::from_env().is_ok());
        return;
    }
    let fastest = Kernel::available().next().expect("there is the portable kernel").name();
    for kernel in Kernel::available() {
        assert_eq!(choice(kernel.name()), format!("active={} valid=true", kernel.name()));
    }
    assert_eq!(choice(""), format!("active={fastest} valid=true"));
    assert_eq!(choice("magic"), format!("active={fastest} valid=false"));
}

/// What a process says that starts with `value` in the environment.
fn choice(value: &str) -> String {
    let test = env::current_exe().expect("tests have a path");
    let output = Command::new(test)
        .args(["--exact", "--nocapture"])
        .arg("the_environment_forces_a_kernel_and_a_wrong_name_falls_back_to_the_fastest")
        .env(ENV, value)
        .env(CHILD, "1")
        .output()
        .expect("a test can start itself");
    let text = String::from_utf8(output.stdout).expect("names are ASCII");
    text.lines().find(|line| line.starts_with("active=")).expect("the child prints its choice").to_owned()
}
