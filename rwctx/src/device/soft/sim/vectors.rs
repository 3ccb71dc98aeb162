//! The vectors of protection information through signatures, in software and offloaded: both must say and make what a vector
//! expects. Vectors of blocks that the device doesn't take run in software alone.

use serde_json::Value;
use t10pi::{Checks, Field, Format, Guard, PiMismatch, PiType, Position, Tags};

use super::super::fault::Faults;
use super::pair::LATENCY;
use super::signature::Run;
use crate::device::conformance::transfer::of_blocks;
use crate::plan::Direction;
use crate::signature::testing::{attrs, join};
use crate::signature::{CopyMask, SigAttrs, Signature, T10Dif};

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../pi/tests/data/vectors.jsonl");

/// A vector's blocks, and what is asked of them.
struct Vector {
    id: String,
    dif: T10Dif,
    checks: Checks,
    data: Vec<u8>,
    md: Vec<u8>,
    expect: Value,
}

#[test]
fn vectors_pass_in_software_and_offloaded_and_make_the_same() {
    let text = std::fs::read_to_string(VECTORS).unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut run = Run::new(1, Faults { latency: LATENCY, ..Faults::default() }, 0);
    let (mut transfers, mut offloaded) = (0, 0);
    let mut check = |vector: &Vector, attrs: &SigAttrs, direction, made: Option<&[u8]>| {
        let Ok(signature) = Signature::new(attrs, direction) else { panic!("{}: {attrs:?}", vector.id) };
        let format = *signature.format();
        for interleaved in [false, true] {
            if interleaved && !signature.protects_memory() {
                continue;
            }
            let transfer = of_blocks(&mut rng, signature, interleaved, 0, vector.data.clone(), &vector.md);
            transfers += 1;
            if let Some(found) = verdict(&vector.expect) {
                assert_eq!(transfer.found, found, "{}: {:?} {direction:?}", vector.id, signature.operation());
            }
            if let Some(made) = made {
                let (to_wire, stream) = (direction == Direction::ToHost, join(&format, &vector.data, made));
                if to_wire {
                    assert_eq!(transfer.wire, stream, "{}", vector.id);
                } else if interleaved {
                    assert_eq!(transfer.after[0], stream, "{}", vector.id);
                } else {
                    assert_eq!(transfer.after[1], made, "{}", vector.id);
                }
            }
            let takes = (512..=65536).contains(&format.block_size());
            if takes && u32::from(format.metadata_size()) <= format.block_size() {
                offloaded += 1;
                run.carry_out(transfer);
            }
        }
    };
    for line in text.lines() {
        let json: Value = serde_json::from_str(line).unwrap();
        let suite = format!("{}.{}", json["suite"].as_str().unwrap(), json["op"].as_str().unwrap());
        if json["fmt"]["type"] == 0 || json["expect"]["verdict"] == "invalid_pi" {
            continue;
        }
        let memory_alone = json["fmt"]["guard"] == "ip";
        match suite.as_str() {
            "nvme.verify" | "scsi.verify" => {
                let vector = parse(&json);
                let dif = Some(vector.dif);
                let checked = |mem, wire| SigAttrs { check_mask: vector.checks, ..attrs(mem, wire) };
                check(&vector, &checked(dif, None), Direction::ToHost, None);
                check(&vector, &checked(None, dif), Direction::FromHost, None);
                check(&vector, &checked(dif, dif), Direction::ToHost, Some(&vector.md));
                check(&vector, &checked(dif, dif), Direction::FromHost, Some(&vector.md));
            }
            "nvme.generate" | "dix.generate" | "scsi.generate" => {
                let vector = parse(&json);
                let (dif, made) = (Some(vector.dif), hex(&json["expect"]["md_out"]));
                // Metadata beside the tuple is the host's: then it comes in, and its tuples go out made anew.
                let whole = vector.md.iter().all(|byte| *byte == 0);
                let anew = SigAttrs {
                    check_mask: Checks::NONE,
                    copy_mask: CopyMask::Fields(Checks::NONE),
                    ..attrs(dif, dif)
                };
                if !memory_alone {
                    check(&vector, &anew, Direction::ToHost, Some(&made));
                    check(&vector, &anew, Direction::FromHost, Some(&made));
                }
                if whole {
                    check(&vector, &attrs(dif, None), Direction::FromHost, Some(&made));
                }
                if whole && !memory_alone {
                    check(&vector, &attrs(None, dif), Direction::ToHost, Some(&made));
                }
            }
            "dix.convert" => {
                let vector = parse(&json);
                let guard = GUARDS.iter().find(|(name, _)| json["cmd"]["to"] == *name).unwrap().1;
                let to = T10Dif {
                    format: with_guard(&vector.dif.format, guard),
                    guard_seed: guard.seed(),
                    ..vector.dif
                };
                let copied = CopyMask::Fields(Checks { guard: false, ..Checks::ALL });
                let made = (json["expect"]["verdict"] == "ok").then(|| hex(&json["expect"]["md_out"]));
                let (mem, wire, direction) = if memory_alone {
                    (vector.dif, to, Direction::ToHost)
                } else {
                    (to, vector.dif, Direction::FromHost)
                };
                let attrs =
                    SigAttrs { check_mask: vector.checks, copy_mask: copied, ..attrs(Some(mem), Some(wire)) };
                check(&vector, &attrs, direction, made.as_deref());
            }
            _ => {}
        }
    }
    assert!(transfers > 5000 && offloaded > 4000, "{transfers} {offloaded}");
}

const GUARDS: [(&str, Guard); 4] =
    [("crc16", Guard::Crc16), ("crc32c", Guard::Crc32c), ("crc64", Guard::Crc64), ("ip", Guard::Ip)];

fn parse(json: &Value) -> Vector {
    let (fmt, cmd) = (&json["fmt"], &json["cmd"]);
    let small = |value: &Value| u16::try_from(number(value)).unwrap();
    let guard = GUARDS.iter().find(|(name, _)| fmt["guard"] == *name).unwrap().1;
    let position = if fmt["pos"] == "first" { Position::First } else { Position::Last };
    let format = Format::new(guard, u32::try_from(number(&fmt["lba"])).unwrap(), small(&fmt["md"])).unwrap();
    let format = format.with_position(position);
    let format =
        format.with_storage_tag(u8::try_from(number(&fmt["sts"])).unwrap(), number(&fmt["lbstm"])).unwrap();
    let mut pi_type = PiType::from_number(u8::try_from(number(&fmt["type"])).unwrap()).unwrap();
    let known = cmd["app_known"].as_array();
    let (app_tag, app_tag_mask) = match (known, cmd.get("app_known")) {
        (Some(known), _) => (small(&known[0]), small(&known[1])),
        (None, Some(_)) => (0, 0),
        (None, None) => (small(&cmd["app_tag"]), small(&cmd["app_mask"])),
    };
    let (mut ref_tag, scsi) = (number(&cmd["ref_tag"]), json["suite"] == "scsi");
    let (mut app_tag, generates) = (app_tag, json["op"] == "generate");
    if scsi && generates {
        // SBC-4: what a device server makes of itself.
        let made = t10pi::scsi::generate_context(&format, pi_type, number(&cmd["lba"]));
        (app_tag, ref_tag, pi_type) = (made.tags().app_tag, made.tags().ref_tag, made.pi_type());
    }
    let tags = Tags { app_tag, app_tag_mask, storage_tag: number(&cmd["storage_tag"]), ref_tag };
    let mut dif = T10Dif::of_type(format, pi_type, tags);
    if scsi && cmd.get("escape").is_some_and(|escape| number(escape) == 0) {
        dif.app_escape = false;
    }
    let named = |name: &str| cmd["check"].as_array().is_some_and(|names| names.iter().any(|n| n == name));
    let prchk = number(&cmd["prchk"]);
    let checks = Checks {
        guard: prchk & 4 != 0 || named("guard"),
        app_tag: prchk & 2 != 0 || named("app"),
        storage_tag: number(&cmd["stc"]) != 0 || named("storage"),
        // Type 3's reference tag is nobody's business but the host's.
        ref_tag: (prchk & 1 != 0 || named("ref")) && pi_type != PiType::Type3,
    };
    let data = data(&json["data"]);
    let size = data.len() / format.block_size() as usize * usize::from(format.metadata_size());
    let mut md = hex(if generates { &json["md_in"] } else { &json["md"] });
    if md.is_empty() {
        md.resize(size, 0);
    }
    Vector { id: json["id"].to_string(), dif, checks, data, md, expect: json["expect"].clone() }
}

fn with_guard(format: &Format, guard: Guard) -> Format {
    let made = Format::new(guard, format.block_size(), format.metadata_size()).unwrap();
    made.with_position(format.position())
        .with_storage_tag(format.storage_tag_bits(), format.storage_tag_mask())
        .unwrap()
}

/// What a vector says of the first failing block; `None` when it says nothing.
fn verdict(expect: &Value) -> Option<Option<PiMismatch>> {
    match expect["verdict"].as_str()? {
        "ok" => Some(None),
        _ => {
            let field = match expect["field"].as_str().unwrap() {
                "guard" => Field::Guard,
                "app" => Field::AppTag,
                "storage" => Field::StorageTag,
                _ => Field::RefTag,
            };
            let [block, expected, actual] = ["block", "expected", "actual"].map(|key| number(&expect[key]));
            Some(Some(PiMismatch { block, field, expected, actual }))
        }
    }
}

/// A number, or none: 0.
fn number(value: &Value) -> u64 {
    match value {
        Value::Null => 0,
        Value::Bool(set) => u64::from(*set),
        Value::String(text) => u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap(),
        _ => value.as_u64().unwrap(),
    }
}

fn hex(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap_or_default().as_bytes();
    text.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn data(value: &Value) -> Vec<u8> {
    if value["enc"] == "hex" {
        return hex(&value["hex"]);
    }
    let length = usize::try_from(number(&value["len"])).unwrap();
    let blocks = value["blocks"].as_array().unwrap();
    blocks.iter().flat_map(|recipe| block(recipe, length)).collect()
}

fn block(recipe: &Value, length: usize) -> Vec<u8> {
    let first = u8::try_from(number(&recipe["b"])).unwrap();
    let mut bytes: Vec<u8> = match recipe["g"].as_str().unwrap() {
        "fill" => vec![first; length],
        "inc" => std::iter::successors(Some(first), |byte| Some(byte.wrapping_add(1))).take(length).collect(),
        "dec" => std::iter::successors(Some(first), |byte| Some(byte.wrapping_sub(1))).take(length).collect(),
        _ => split_mix(number(&recipe["s"]), length),
    };
    for change in recipe["x"].as_array().into_iter().flatten() {
        let at = usize::try_from(number(&change[0])).unwrap();
        for (byte, flip) in bytes[at..].iter_mut().zip(hex(&change[1])) {
            *byte ^= flip;
        }
    }
    bytes
}

fn split_mix(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        bytes.extend((z ^ z >> 31).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
