//! Faults that tests inject are in builds with the feature `_fault` only.

use intact_tests::target::program;

#[test]
fn programs_contain_fault_injection_only_if_they_were_built_for_tests_with_faults() {
    for name in ["intact", "intact-host"] {
        let bytes = std::fs::read(program(name)).expect("a built program can be read");
        let has = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
        assert!(has(b"nqn.2014-08.org.nvmexpress"), "{name}: strings can be found");
        assert_eq!(has(b"INTACT_FAULT_LOSS"), cfg!(feature = "_fault"), "{name}");
    }
}
