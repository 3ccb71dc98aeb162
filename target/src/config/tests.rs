use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use rwctx::device::soft::persona::Persona;
use t10pi::{Format, Guard, PiType};

use super::*;

/// Files of the imaginary disk that the tests' configurations are on.
fn imaginary(path: &Path) -> std::io::Result<FileState> {
    Ok(match path.to_str() {
        Some("/etc/intact/full.img" | "/etc/intact/a.img") => FileState::Regular,
        Some("/etc/intact/empty.img") => FileState::Empty,
        Some("/etc/intact/folder") => FileState::Folder,
        Some("/dev/null") => FileState::Other,
        Some("/dev/sdz") => FileState::BlockDevice,
        Some("/root/secret") => return Err(std::io::ErrorKind::PermissionDenied.into()),
        Some(path) if path.starts_with("/etc/intact/") => FileState::Missing,
        _ => FileState::MissingFolder,
    })
}

fn parse(text: &str) -> Result<Config, ConfigErrors> {
    Config::parse(text.as_bytes(), Path::new("/etc/intact/c.toml"), &imaginary)
}

/// The errors of a text, without the file's name.
fn errors(text: &str) -> Vec<String> {
    let errors =
        parse(text).map_or_else(|errors| errors.to_string(), |config| format!("no error: {config:?}"));
    errors.lines().map(|line| line.strip_prefix("/etc/intact/c.toml:").unwrap_or(line).to_owned()).collect()
}

const SMALLEST: &str = r#"
[[volume]]
name = "disk0"
memory = "256MiB"
protection = { type = 1 }

[[nvme.subsystem]]
nqn = "nqn.2026-11.io.intact:disk0"
allow_any_host = true
[[nvme.subsystem.namespace]]
volume = "disk0"
"#;

#[test]
fn the_smallest_useful_file_has_the_documented_defaults() {
    let config = parse(SMALLEST).unwrap();
    assert_eq!(config.device, Device::default());
    assert_eq!(config.device.addresses, [IpAddr::V4(Ipv4Addr::LOCALHOST)]);
    assert_eq!((config.reactor.cores.count(), config.reactor.cores.cpu(0)), (1, None));
    assert_eq!(config.reactor.poll, Poll::Adaptive);
    assert_eq!(config.metrics.address, None);
    assert_eq!(config.nvme_listeners().map(|l| l.to_string()).collect::<Vec<_>>(), ["127.0.0.1:4420"]);
    let volume = config.volume("disk0").unwrap();
    assert_eq!(volume.backend, Backend::Memory { size: 256 << 20 });
    assert_eq!((volume.block_size, volume.read_only), (4096, false));
    let format = Format::new(Guard::Crc16, 4096, 8).unwrap();
    let protection = Protection { pi_type: PiType::Type1, format, layout: Layout::Separate };
    assert_eq!(volume.protection, Some(protection));
    let subsystem = &config.nvme.subsystems[0];
    assert_eq!(subsystem.hosts, Hosts::Any);
    assert_eq!(subsystem.namespaces, [Namespace { nsid: 1, volume: "disk0".to_owned() }]);
}

#[test]
fn an_empty_file_is_a_configuration_of_defaults() {
    assert_eq!(parse("").unwrap(), Config::default());
}

#[test]
fn every_key_reaches_its_value() {
    let config = parse(
        r#"
        [device]
        provider = "soft"
        addresses = ["192.0.2.1", "fd00::1"]
        integrity = "software"
        persona = "mlx5"
        [reactor]
        cores = [2, 0]
        poll = "busy"
        [metrics]
        address = "[::1]:9420"
        [nvme]
        port = 14420
        serial = "SHARED"
        hosts = ["nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"]
        [[volume]]
        name = "a"
        file = "a.img"
        size = 0x100_000
        block_size = 512
        read_only = true
        uuid = "5b6c9a52-3d7e-4c8f-9a41-0e2d7c6b8a10"
        serial = "VOL A"
        protection = { type = 3, guard = "crc16", metadata_size = 16, layout = "interleaved", storage_tag_bits = 0 }
        [[volume]]
        name = "c"
        memory = "1MiB"
        protection = { type = 1, guard = "crc32c" }
        [[volume]]
        name = "d"
        memory = "1MiB"
        protection = { type = 2, guard = "crc64", metadata_size = 64, storage_tag_bits = 18, storage_tag_mask = 0x3_00FF }
        [[volume]]
        name = "e"
        memory = "1MiB"
        protection = { type = 2, guard = "crc32c", storage_tag_bits = 64, storage_tag_mask = 0xFFFF_FFFF_FFFF_FFFE }
        [[volume]]
        name = "b"
        null = "1TiB"
        protection.type = 0
        [[nvme.subsystem]]
        nqn = "nqn.2026-11.io.intact:one"
        serial = "ONE"
        hosts = ["nqn.2026-11.org.example:host"]
        [[nvme.subsystem.namespace]]
        volume = "b"
        [[nvme.subsystem.namespace]]
        volume = "a"
        nsid = 1
        [[nvme.subsystem]]
        nqn = "nqn.2026-11.io.intact:two"
        [[nvme.subsystem.namespace]]
        volume = "a"
        "#,
    )
    .unwrap();
    assert_eq!(config.device.integrity, Integrity::Software);
    assert_eq!(config.device.persona, Some(Persona::Mlx5));
    let listeners: Vec<_> = config.nvme_listeners().map(|l| l.to_string()).collect();
    assert_eq!(listeners, ["192.0.2.1:14420", "[fd00::1]:14420"]);
    assert_eq!(config.reactor, Reactor { cores: Cores::Cpus(vec![2, 0]), poll: Poll::Busy });
    assert_eq!(config.metrics.address, Some("[::1]:9420".parse().unwrap()));
    let a = config.volume("a").unwrap();
    assert_eq!(a.backend, Backend::File { path: "/etc/intact/a.img".into(), size: Some(1 << 20) });
    assert_eq!((a.block_size, a.read_only), (512, true));
    assert_eq!(a.uuid.unwrap().to_string(), "5b6c9a52-3d7e-4c8f-9a41-0e2d7c6b8a10");
    assert_eq!(a.serial.as_ref().map(Serial::as_str), Some("VOL A"));
    let format = Format::new(Guard::Crc16, 512, 16).unwrap();
    let protection = Protection { pi_type: PiType::Type3, format, layout: Layout::Interleaved };
    assert_eq!(a.protection, Some(protection));
    let format = |name: &str| config.volume(name).unwrap().protection.unwrap().format;
    assert_eq!(format("c"), Format::new(Guard::Crc32c, 4096, 16).unwrap());
    assert_eq!((format("c").storage_tag_bits(), format("c").storage_tag_mask()), (16, 0xFFFF));
    let crc64 = Format::new(Guard::Crc64, 4096, 64).unwrap();
    assert_eq!(format("d"), crc64.with_storage_tag(18, 0x3_00FF).unwrap());
    assert_eq!(format("e").storage_tag_mask(), 0xFFFF_FFFF_FFFF_FFFE);
    let b = config.volume("b").unwrap();
    assert_eq!((&b.backend, b.protection), (&Backend::Null { size: 1 << 40 }, None));
    let [one, two] = &config.nvme.subsystems[..] else { panic!("two subsystems") };
    assert_eq!((one.serial.as_str(), two.serial.as_str()), ("ONE", "SHARED"));
    assert!(one.hosts.allows("nqn.2026-11.org.example:host"));
    assert!(!one.hosts.allows("nqn.2026-11.org.example:HOST"));
    assert!(two.hosts.allows("nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"));
    let numbered: Vec<_> =
        one.volumes(&config.volumes).map(|(nsid, volume)| (nsid, volume.name.as_str())).collect();
    assert_eq!(numbered, [(1, "a"), (2, "b")]);
}

#[test]
fn volumes_are_logical_units_beside_namespaces() {
    let config = parse(
        r#"
        [iscsi]
        port = 13260
        [[volume]]
        name = "a"
        memory = "1MiB"
        [[volume]]
        name = "b"
        memory = "1MiB"
        protection = { type = 2 }
        [[nvme.subsystem]]
        nqn = "nqn.2026-11.io.intact:a"
        allow_any_host = true
        namespace = [{ volume = "a" }]
        [[iscsi.target]]
        iqn = "iqn.2026-11.io.intact:Both"
        initiators = ["iqn.2026-11.org.example:host"]
        chap = { user = "u", secret = "twelve bytes", mutual_user = "t", mutual_secret = "twelve others" }
        lun = [{ volume = "b", lun = 0 }, { volume = "a" }]
        [[iscsi.target]]
        iqn = "eui.0123456789abcdef"
        allow_any_initiator = true
        "#,
    )
    .unwrap();
    let [both, empty] = &config.iscsi.targets[..] else { panic!("two targets") };
    assert_eq!(both.iqn.as_str(), "iqn.2026-11.io.intact:both");
    let units: Vec<_> =
        both.volumes(&config.volumes).map(|(lun, volume)| (lun, volume.name.as_str())).collect();
    assert_eq!(units, [(0, "b"), (1, "a")]);
    assert!(both.chap.as_ref().unwrap().is_mutual());
    assert!(empty.chap.is_none() && empty.units.is_empty());
    let portals: Vec<_> = config.iscsi_portals().map(|portal| portal.to_string()).collect();
    assert_eq!(portals, ["127.0.0.1:13260"]);
    assert_eq!(
        (config.home("a"), config.home("b")),
        (Some("nqn.2026-11.io.intact:a"), Some(both.iqn.as_str()))
    );
    assert!(!format!("{config:?}").contains("twelve"), "secrets are not shown");
}

#[test]
fn what_only_targets_export_opens_no_port_for_nvme() {
    let text = "[[iscsi.target]]\niqn = \"iqn.2026-11.io.intact:a\"\nallow_any_initiator = true\n";
    let only = parse(text).unwrap();
    assert_eq!((only.nvme_listeners().count(), only.iscsi_portals().count()), (0, 1));
    let none = parse("").unwrap();
    assert_eq!((none.nvme_listeners().count(), none.iscsi_portals().count()), (1, 0));
    assert_eq!(
        none.needs_restart(&only),
        ["nvme: whether hosts can connect", "iscsi: whether hosts can connect"]
    );
}

#[test]
fn each_mistake_has_its_message_and_place() {
    let cases: &[(&str, &[&str])] = &[
        // Syntax.
        ("[device\n", &["1:8: not valid TOML: unclosed table, expected `]`"]),
        ("[reactor]\npoll = \"adaptive\"\npoll = \"busy\"\n", &["3:1: not valid TOML: duplicate key"]),
        // Unknown keys.
        (
            "[nvmee]\n",
            &[
                "1:2: nvmee: unknown key; did you mean `nvme`? Allowed: device, reactor, metrics, volume, nvme, iscsi",
            ],
        ),
        (
            "[reactor]\ncoers = 1\nzzz = 2\n",
            &[
                "2:1: reactor.coers: unknown key; did you mean `cores`? Allowed: cores, poll",
                "3:1: reactor.zzz: unknown key; allowed: cores, poll",
            ],
        ),
        (
            "[reactor]\n\"po\\nll\" = 1\n",
            &["2:1: reactor.\"po\\nll\": unknown key; did you mean `poll`? Allowed: cores, poll"],
        ),
        // Types and ranges.
        ("reactor = 1\n", &["1:11: reactor: must be a table, and is an integer"]),
        ("volume = {}\n", &["1:10: volume: must be a list of tables, written [[volume]], and is a table"]),
        ("volume = [1]\n", &["1:11: volume[0]: must be a table, and is an integer"]),
        ("[nvme]\nport = 0\n", &["2:8: nvme.port: must be from 1 to 65535, and is 0"]),
        ("[nvme]\nport = -1\n", &["2:8: nvme.port: must be from 1 to 65535, and is -1"]),
        (
            "[nvme]\nport = \"4420\"\n",
            &["2:8: nvme.port: must be an integer from 1 to 65535, and is a string"],
        ),
        // Device.
        #[cfg(not(feature = "verbs"))]
        (
            "[device]\nprovider = \"verbs\"\n",
            &[
                "2:12: device.provider: this build lacks the verbs provider: build with `cargo build --release --features verbs`; \
                 allowed: \"soft\"",
            ],
        ),
        (
            "[device]\nprovider = \"rxe\"\n",
            &["2:12: device.provider: \"rxe\" is none of \"soft\", \"verbs\""],
        ),
        (
            "[device]\nintegrity = \"hardware\"\n",
            &["2:13: device.integrity: \"hardware\" is none of \"auto\", \"offload\", \"software\""],
        ),
        (
            "[device]\nintegrity = \"offload\"\npersona = \"iwarp\"\n",
            &["2:13: device.integrity: the device has no signature offload; allowed: \"auto\", \"software\""],
        ),
        #[cfg(all(feature = "verbs", not(feature = "mlx5")))]
        (
            "[device]\nprovider = \"verbs\"\nintegrity = \"offload\"\n",
            &[
                "3:13: device.integrity: this build lacks the signature offload of ConnectX (cargo feature mlx5); allowed: \"auto\", \
                 \"software\"",
            ],
        ),
        (
            "[device]\npersona = \"siw\"\n",
            &["2:11: device.persona: \"siw\" is none of \"rxe\", \"mlx5\", \"iwarp\""],
        ),
        (
            "[device]\naddress = \"0.0.0.0\"\n",
            &["2:11: device.address: 0.0.0.0 stands for all addresses; list those to listen on"],
        ),
        ("[device]\naddress = \"224.0.0.1\"\n", &["2:11: device.address: 224.0.0.1 is a multicast address"]),
        (
            "[device]\naddress = \"255.255.255.255\"\n",
            &["2:11: device.address: 255.255.255.255 is a broadcast address"],
        ),
        (
            "[device]\naddress = \"::ffff:10.0.0.1\"\n",
            &["2:11: device.address: ::ffff:10.0.0.1 is an IPv4 address in IPv6 form; write it as IPv4"],
        ),
        (
            "[device]\naddress = \"fe80::1\"\n",
            &[
                "2:11: device.address: fe80::1 is link-local, which needs an interface that RoCE's headers have no room for; \
               give a global, unique local or IPv4 address",
            ],
        ),
        (
            "[device]\naddresses = [\"::1\", \"localhost:1\", \"::1\"]\n",
            &[
                "2:21: device.addresses[1]: \"localhost:1\" is no IP address; give one of this machine's, such as \
                 \"127.0.0.1\" or \"fd00::1\", without port",
                "2:36: device.addresses[2]: ::1 is listed twice",
            ],
        ),
        (
            "[device]\naddresses = []\n",
            &["2:13: device.addresses: the list is empty; give at least one address, such as \"127.0.0.1\""],
        ),
        (
            "[device]\naddress = \"::1\"\naddresses = [\"::1\"]\n",
            &["2:11: device.address: give either `address` or `addresses`, not both"],
        ),
        // Reactor and metrics.
        ("[reactor]\ncores = 0\n", &["2:9: reactor.cores: must be from 1 to 64, and is 0"]),
        (
            "[reactor]\ncores = []\n",
            &["2:9: reactor.cores: the list is empty; give at least one CPU number, such as [0]"],
        ),
        ("[reactor]\ncores = [0, 0]\n", &["2:13: reactor.cores[1]: CPU 0 is listed twice"]),
        ("[reactor]\ncores = [1024]\n", &["2:10: reactor.cores[0]: must be from 0 to 1023, and is 1024"]),
        ("[reactor]\npoll = \"fast\"\n", &["2:8: reactor.poll: \"fast\" is none of \"adaptive\", \"busy\""]),
        (
            "[metrics]\naddress = \"9420\"\n",
            &[
                "2:11: metrics.address: \"9420\" is no address and port; give such as \"127.0.0.1:9420\" or \"[::1]:9420\"",
            ],
        ),
        (
            "[metrics]\naddress = \"[::1]:0\"\n",
            &["2:11: metrics.address: \"[::1]:0\" has port 0; give a port from 1 to 65535"],
        ),
        // iSCSI.
        // Volumes.
        ("[[volume]]\nmemory = \"1MiB\"\n", &["1:1: volume[0]: `name` is missing, such as name = \"disk0\""]),
        (
            "[[volume]]\nname = \"a b\"\nmemory = \"1MiB\"\n",
            &["2:8: volume[0].name: \"a b\" is no volume name: 1 to 64 ASCII letters, digits, `.`, `_`, `-`"],
        ),
        (
            "[[volume]]\nname = \"a\"\n",
            &["1:1: volume[0]: it needs a backend: memory = \"256MiB\", file = \"PATH\" or null = \"1TiB\""],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = \"1MiB\"\nnull = \"1MiB\"\n",
            &["1:1: volume[0]: it has more than one backend; keep one of memory, file, null"],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = \"1MB\"\n",
            &["3:10: volume[0].memory: \"1MB\" has no binary unit; did you mean \"1MiB\"?"],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = 1.5\n",
            &[
                "3:10: volume[0].memory: must be a size such as \"256MiB\" (KiB, MiB, GiB, TiB) or an integer of bytes, and is a float",
            ],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = 4097\n",
            &["3:10: volume[0].memory: 4097 bytes are no whole number of 4096-byte blocks"],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = 0\n",
            &["3:10: volume[0].memory: must be from 1 to 1152921504606846976, and is 0"],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = \"1MiB\"\nsize = \"1MiB\"\n",
            &["4:8: volume[0].size: only a file has a `size`; memory and null say theirs themselves"],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = \"1MiB\"\nblock_size = 1024\n",
            &["4:14: volume[0].block_size: must be 512 or 4096, and is 1024"],
        ),
        (
            "[[volume]]\nname = \"a\"\nfile = \"new.img\"\n",
            &[
                "3:8: volume[0].file: /etc/intact/new.img doesn't exist; give the `size` to make it with, such as size = \"1GiB\"",
            ],
        ),
        (
            "[[volume]]\nname = \"a\"\nfile = \"new.img\"\nsize = \"1MiB\"\nread_only = true\n",
            &[
                "3:8: volume[0].file: /etc/intact/new.img doesn't exist, and a `read_only` volume makes no file; name one that exists",
            ],
        ),
        (
            "[[volume]]\nname = \"a\"\nfile = \"empty.img\"\n",
            &[
                "3:8: volume[0].file: /etc/intact/empty.img is empty; give the `size` that it shall have, such as size = \"1GiB\"",
            ],
        ),
        (
            "[[volume]]\nname = \"a\"\nfile = \"/no/new.img\"\nsize = \"1MiB\"\n",
            &["3:8: volume[0].file: /no/new.img can't be made: its folder doesn't exist"],
        ),
        (
            "[[volume]]\nname = \"a\"\nfile = \"folder\"\n",
            &["3:8: volume[0].file: /etc/intact/folder is a folder; a file or block device is needed"],
        ),
        (
            "[[volume]]\nname = \"a\"\nfile = \"/dev/null\"\n",
            &["3:8: volume[0].file: /dev/null is neither a file nor a block device"],
        ),
        (
            "[[volume]]\nname = \"a\"\nfile = \"/dev/sdz\"\nsize = \"1MiB\"\n",
            &["4:8: volume[0].size: a block device has its own size; leave `size` out"],
        ),
        (
            "[[volume]]\nname = \"a\"\nfile = \"/root/secret\"\n",
            &["3:8: volume[0].file: /root/secret can't be used: permission denied"],
        ),
        (
            "[[volume]]\nname = \"a\"\nfile = \"full.img\"\n[[volume]]\nname = \"b\"\nfile = \"full.img\"\n",
            &["6:8: volume[1].file: /etc/intact/full.img is used by an earlier volume"],
        ),
        (
            "[[volume]]\nname = \"a\"\nfile = \"full.img\"\nprotection.type = 1\n[[volume]]\nname = \"b\"\nfile = \"full.img.pi\"\nsize = 4096\n",
            &["7:8: volume[1].file: /etc/intact/full.img.pi is used by an earlier volume"],
        ),
        (
            "[[volume]]\nname = \"a\"\nfile = \"full.img.pr.new\"\nsize = 4096\n[[volume]]\nname = \"b\"\nfile = \"full.img\"\n",
            &["7:8: volume[1].file: /etc/intact/full.img.pr.new is used by an earlier volume"],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = 4096\n[[volume]]\nname = \"a\"\nmemory = 4096\n",
            &["5:8: volume[1].name: \"a\" is the name of an earlier volume, too"],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = 4096\nuuid = \"disk\"\nserial = \" x\"\n",
            &[
                "4:8: volume[0].uuid: \"disk\" is no UUID; it must look like 5b6c9a52-3d7e-4c8f-9a41-0e2d7c6b8a10",
                "5:10: volume[0].serial: \" x\" is no serial number: 1 to 20 printable ASCII characters, no space at either end",
            ],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = 4096\nuuid = \"00000000-0000-0000-0000-000000000000\"\n",
            &[
                "4:8: volume[0].uuid: the nil UUID names nothing; give another, such as 5b6c9a52-3d7e-4c8f-9a41-0e2d7c6b8a10",
            ],
        ),
        // Protection.
        (
            "[[volume]]\nname = \"a\"\nmemory = 4096\nprotection = {}\n",
            &["4:14: volume[0].protection: `type` is missing, such as type = 1"],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = 4096\nprotection = true\n",
            &["4:14: volume[0].protection: must be a table, and is a boolean"],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = 4096\nprotection = { type = 4 }\n",
            &["4:23: volume[0].protection.type: must be from 0 to 3, and is 4"],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = 4096\nprotection = { type = 0, layout = \"separate\" }\n",
            &["4:14: volume[0].protection: type 0 is no protection and has no other keys"],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = 4096\n[volume.protection]\ntype = 1\nguard = \"crc64\"\nmetadata_size = 12\nstorage_tag_bits = 16\napp_tag = 1\nposition = \"first\"\n",
            &[
                "7:17: volume[0].protection.metadata_size: must be a multiple of 8, and is 12",
                "9:11: volume[0].protection.app_tag: not supported yet: an application tag for hosts that can't name one; NVMe hosts name it in each command",
                "10:1: volume[0].protection.position: unknown key; allowed: type, guard, metadata_size, layout, storage_tag_bits, storage_tag_mask, app_tag",
            ],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = 4096\nprotection = { type = 1, guard = \"crc32\" }\n",
            &["4:34: volume[0].protection.guard: \"crc32\" is none of \"crc16\", \"crc32c\", \"crc64\""],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = 4096\nblock_size = 512\nprotection = { type = 1, guard = \"crc64\" }\n",
            &["5:34: volume[0].protection.guard: crc64 needs blocks of 4096 bytes, and these have 512"],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = 4096\nprotection = { type = 1, guard = \"crc64\", metadata_size = 8 }\n",
            &["4:59: volume[0].protection.metadata_size: must be at least 16, the tuple of crc64, and is 8"],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = 4096\nprotection = { type = 1, guard = \"crc32c\", storage_tag_bits = 0 }\n",
            &["4:63: volume[0].protection.storage_tag_bits: must be from 16 to 64 with crc32c, and is 0"],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = 4096\nprotection = { type = 1, storage_tag_bits = 33 }\n",
            &["4:45: volume[0].protection.storage_tag_bits: must be from 0 to 32 with crc16, and is 33"],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = 4096\nprotection = { type = 1, storage_tag_bits = 8, storage_tag_mask = 0x100 }\n",
            &[
                "4:67: volume[0].protection.storage_tag_mask: 0x100 has bits that a storage tag of 8 bits has not; allowed: 0 to 0xff",
            ],
        ),
        // Subsystems.
        (
            "[[nvme.subsystem]]\nallow_any_host = true\n",
            &["1:1: nvme.subsystem[0]: `nqn` is missing, such as nqn = \"nqn.2026-11.org.example:disk0\""],
        ),
        (
            "[[nvme.subsystem]]\nnqn = \"disk0\"\nallow_any_host = true\n",
            &[
                "2:7: nvme.subsystem[0].nqn: \"disk0\" is no NVMe Qualified Name: it must look like nqn.2026-11.org.example:name",
            ],
        ),
        (
            "[[nvme.subsystem]]\nnqn = \"nqn.2026-11.io.intact:a\"\n",
            &[
                "1:1: nvme.subsystem[0]: nobody may connect; give hosts = [\"nqn…\", …] or allow_any_host = true",
            ],
        ),
        (
            "[[nvme.subsystem]]\nnqn = \"nqn.2026-11.io.intact:a\"\nallow_any_host = false\n",
            &[
                "1:1: nvme.subsystem[0]: nobody may connect; give hosts = [\"nqn…\", …] or allow_any_host = true",
            ],
        ),
        (
            "[[nvme.subsystem]]\nnqn = \"nqn.2026-11.io.intact:a\"\nhosts = []\n",
            &[
                "3:9: nvme.subsystem[0].hosts: the list is empty, so that nobody may connect; give at least one host's NQN",
            ],
        ),
        (
            "[[nvme.subsystem]]\nnqn = \"nqn.2026-11.io.intact:a\"\nallow_any_host = true\nhosts = [\"nqn.2026-11.io.intact:h\"]\n",
            &["4:9: nvme.subsystem[0].hosts: hosts are listed and allow_any_host is true; keep one of them"],
        ),
        (
            "[[nvme.subsystem]]\nnqn = \"nqn.2026-11.io.intact:a\"\nhosts = [\"host\", \"nqn.2026-11.a:h\", \"nqn.2026-11.a:h\"]\n",
            &[
                "3:10: nvme.subsystem[0].hosts[0]: \"host\" is no NVMe Qualified Name: it must look like nqn.2026-11.org.example:name",
                "3:37: nvme.subsystem[0].hosts[2]: nqn.2026-11.a:h is listed twice",
            ],
        ),
        (
            "[[nvme.subsystem]]\nnqn = \"nqn.2026-11.io.intact:a\"\nallow_any_host = true\n[[nvme.subsystem]]\nnqn = \"nqn.2026-11.io.intact:a\"\nallow_any_host = true\n",
            &["5:7: nvme.subsystem[1].nqn: nqn.2026-11.io.intact:a is the name of an earlier subsystem, too"],
        ),
        // Namespaces.
        (
            "[[volume]]\nname = \"w\"\nmemory = \"1MiB\"\nprotection = { type = 1, guard = \"crc64\" }\n[[iscsi.target]]\niqn = \"disk\"\nlun = [{ volume = \"w\", lun = 16384 }]\n[[iscsi.target]]\niqn = \"iqn.2026-11.io.intact:a\"\nallow_any_initiator = true\ninitiators = [\"iqn.2026-11.io.intact:h\"]\nchap = { user = \"\", secret = \"secret\", mutual_user = \"x\" }\n",
            &[
                "5:1: iscsi.target[0]: nobody may log in; give initiators = [\"iqn…\", …] or allow_any_initiator = true",
                "6:7: iscsi.target[0].iqn: \"disk\" is no iSCSI name: it must look like iqn.2026-11.org.example:name, or be eui. or naa. with 16 or 32 digits",
                "7:19: iscsi.target[0].lun[0].volume: volume \"w\" can't be a logical unit: a logical unit has tuples of 8 bytes with a CRC of 16 bits and no storage tag; the volume has others",
                "7:30: iscsi.target[0].lun[0].lun: must be from 0 to 16383, and is 16384",
                "11:14: iscsi.target[1].initiators: initiators are listed and allow_any_initiator is true; keep one of them",
                "12:8: iscsi.target[1].chap: `mutual_secret` is missing, such as mutual_secret = \"…\", of 12 bytes at least",
                "12:17: iscsi.target[1].chap.user: must have 1 to 255 bytes, none of them zero",
                "12:30: iscsi.target[1].chap.secret: must have 12 to 255 bytes, and has 6",
            ],
        ),
        (
            "[[nvme.subsystem]]\nnqn = \"nqn.2026-11.io.intact:a\"\nallow_any_host = true\nnamespace = [{ volume = \"a\" }, {}]\n",
            &[
                "4:25: nvme.subsystem[0].namespace[0].volume: there is no volume \"a\", nor any other",
                "4:32: nvme.subsystem[0].namespace[1]: `volume` is missing, such as volume = \"disk0\"",
            ],
        ),
        // A volume that is wrong is there all the same.
        (
            "[[volume]]\nname = \"a\"\nmemory = \"1MB\"\n[[nvme.subsystem]]\nnqn = \"nqn.2026-11.io.intact:a\"\nallow_any_host = true\nnamespace = [{ volume = \"a\" }]\n",
            &["3:10: volume[0].memory: \"1MB\" has no binary unit; did you mean \"1MiB\"?"],
        ),
        (
            "[[volume]]\nname = \"a\"\nmemory = 4096\n[[volume]]\nname = \"b\"\nmemory = 4096\n[[nvme.subsystem]]\nnqn = \"nqn.2026-11.io.intact:a\"\nallow_any_host = true\n\
             namespace = [{ volume = \"a\", nsid = 7 }, { volume = \"b\", nsid = 7 }, { volume = \"a\" }, { volume = \"c\", nsid = 0 }]\n",
            &[
                "10:65: nvme.subsystem[0].namespace[1].nsid: namespace 7 exists already in this subsystem",
                "10:81: nvme.subsystem[0].namespace[2].volume: volume \"a\" is a namespace of this subsystem already",
                "10:99: nvme.subsystem[0].namespace[3].volume: there is no volume \"c\"; there are: a, b",
                "10:111: nvme.subsystem[0].namespace[3].nsid: must be from 1 to 1024, and is 0",
            ],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(errors(text), *expected, "for:\n{text}");
    }
}

#[test]
fn text_that_is_not_utf8_is_refused_where_it_breaks() {
    let errors = Config::parse(b"[nvme]\n# \xff\n", Path::new("c.toml"), &imaginary).unwrap_err();
    assert_eq!(errors.to_string(), "c.toml:2:3: not valid TOML: the file is not UTF-8 text");
}

#[test]
fn of_a_file_that_is_something_else_the_first_errors_are_told() {
    for line in ["Nov 30 08:00:00 host kernel: a \"message", "key_NUMBER = 1"] {
        let lines = (0..5000).map(|number| line.replace("NUMBER", &number.to_string()));
        let text = lines.collect::<Vec<_>>().join("\n");
        let errors = parse(&text).unwrap_err();
        assert_eq!(errors.errors().len(), 100, "{line}");
        let told = errors.to_string();
        let last = told.lines().last().unwrap();
        assert!(last.ends_with(" more errors are not shown"), "{last}");
        assert_eq!(told.lines().count(), 101, "{line}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named_with_the_reason() {
    let errors = Config::load(Path::new("/nonexistent/c.toml")).unwrap_err();
    assert_eq!(
        errors.to_string(),
        "/nonexistent/c.toml: the file can't be read: No such file or directory (os error 2)"
    );
}

#[test]
fn columns_count_characters_and_not_bytes() {
    assert_eq!(
        errors("[reactor]\npoll = \"…\" # ü\n\"ü\" = 1"),
        [
            "2:8: reactor.poll: \"…\" is none of \"adaptive\", \"busy\"",
            "3:1: reactor.\"ü\": unknown key; allowed: cores, poll",
        ]
    );
}

#[test]
fn the_home_of_a_volume_is_the_first_subsystem_that_presents_it() {
    let two = format!(
        "{SMALLEST}[[nvme.subsystem]]\nnqn = \"nqn.2026-11.io.intact:two\"\nallow_any_host = true\n\
         namespace = [{{ volume = \"disk0\" }}]\n[[volume]]\nname = \"spare\"\nmemory = 4096\n"
    );
    let config = parse(&two).unwrap();
    assert_eq!(config.home("disk0"), Some("nqn.2026-11.io.intact:disk0"));
    assert_eq!(config.home("spare"), None);
}

#[test]
fn only_what_is_read_at_start_needs_a_restart() {
    let old = parse(SMALLEST).unwrap();
    let changes = |text: &str| old.needs_restart(&parse(text).unwrap());
    assert!(changes(SMALLEST).is_empty());
    assert!(changes(&SMALLEST.replace("256MiB", "1GiB")).is_empty());
    assert!(
        changes(&SMALLEST.replace("allow_any_host = true", "hosts = [\"nqn.2026-11.io.intact:h\"]"))
            .is_empty()
    );
    assert_eq!(changes(&SMALLEST.replace("type = 1", "type = 2")), ["volume disk0: protection"]);
    assert_eq!(changes(&SMALLEST.replace("memory", "null")), ["volume disk0: backend"]);
    let moved = ["volume disk0: uuid", "volume disk0: serial"];
    assert_eq!(changes(&SMALLEST.replace("intact:disk0", "intact:other")), moved);
    assert_eq!(
        changes(&format!("[reactor]\ncores = 2\n[nvme]\nport = 1\n{SMALLEST}")),
        ["reactor", "nvme.port"]
    );
}

#[test]
fn what_needs_a_restart_stays_as_it_is_and_the_rest_changes() {
    let old = parse(SMALLEST).unwrap();
    let change = |text: &str| old.without_restart(parse(text).unwrap());
    assert_eq!(change(SMALLEST), old);
    let text = format!(
        "[device]\naddress = \"::1\"\n[reactor]\ncores = 2\n[metrics]\naddress = \"[::1]:1\"\n[nvme]\nport = 1\n{SMALLEST}"
    );
    assert_eq!(change(&text), old);
    assert_eq!(
        change(&SMALLEST.replace("type = 1", "type = 2").replace("nqn =", "serial = \"X\"\nnqn =")),
        old
    );
    assert_eq!(change(&SMALLEST.replace("memory", "null")), old);

    let resized = change(&SMALLEST.replace("256MiB", "1GiB"));
    assert_eq!(resized.volume("disk0").unwrap().backend, Backend::Memory { size: 1 << 30 });
    let odd = change(&SMALLEST.replace("\"256MiB\"", "512\nblock_size = 512"));
    assert_eq!(odd, old, "one block of 512 bytes is none of 4096");
    let hosts = change(&SMALLEST.replace("allow_any_host = true", "hosts = [\"nqn.2026-11.a:h\"]"));
    assert_ne!(hosts.nvme.subsystems[0].hosts, old.nvme.subsystems[0].hosts);
    let removed = change("[[volume]]\nname = \"other\"\nmemory = 4096\n");
    assert_eq!((removed.nvme.subsystems.len(), removed.volumes.len()), (0, 1));
    assert!(old.needs_restart(&old.without_restart(parse(&text).unwrap())).is_empty());
}

/// Whatever the text, it is a configuration or has errors with places inside it, one line each.
pub(crate) fn no_text_misbehaves(text: &[u8]) {
    if let Err(errors) = Config::parse(text, Path::new("c.toml"), &|_| Ok(FileState::Missing)) {
        assert!(!errors.errors().is_empty());
        assert_eq!(errors.to_string().lines().count(), errors.errors().len());
    }
}

proptest! {
    #[test]
    fn random_text_is_a_configuration_or_has_errors(text in ".*") {
        no_text_misbehaves(text.as_bytes());
    }

    #[test]
    fn a_configuration_with_one_piece_replaced_is_a_configuration_or_has_errors(
        at in 0..SMALLEST.len(),
        length in 0..20_usize,
        with in "[\\x00-\\x7f]{0,8}",
    ) {
        let mut text = SMALLEST.as_bytes().to_vec();
        let end = (at + length).min(text.len());
        text.splice(at..end, with.into_bytes());
        no_text_misbehaves(&text);
    }
}
