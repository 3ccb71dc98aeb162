//! Whoever checks what hosts send, software or the device, and whatever device it is: commands end the same, the error log says the
//! same, and the media hold the same bytes, also while packets are lost.
//!
//! Runs the suite's damage through real targets whose volumes are files, one command after the other, and compares all that came
//! of it with what came of it in software.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use intact::nvmf::wire::log_page::{ErrorEntry, lid};
use intact_tests::host::{Host, HostConfig};
use intact_tests::metrics::Metrics;
use intact_tests::target::{Target, program};
use intact_tools::host::Keys;
use zerocopy::FromBytes;

use super::command::{Action, Op, io_op};
use super::damage::{BLOCKS, Damage, Scene};
use super::format::{self, Backend, Format};
use super::oracle::Checks;
use super::point::Checker;

const NQN: &str = "nqn.2026-11.io.intact:answers";
/// Blocks of a volume.
const VOLUME: usize = 64;
/// Packets that a target loses where it is to lose some.
const LOSS: &str = "0.005";

/// A target.
#[derive(Clone, Copy)]
struct Kind {
    checker: Checker,
    persona: Option<&'static str>,
    loses: bool,
    /// The last byte of its address.
    number: u8,
}

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    /// What it was.
    what: String,
    status: u16,
    /// The error log's entry of one that failed: status, LBA, namespace.
    entry: Option<(u16, u64, u32)>,
}

/// What came of the commands.
#[derive(PartialEq, Eq)]
struct Outcome {
    answers: Vec<Answer>,
    /// Each volume's file, and `FILE.pi` if it has one.
    media: Vec<(String, Vec<u8>)>,
}

/// Volumes in files: of every guard, type, layout, metadata and storage tag.
fn formats() -> Vec<Format> {
    format::all().into_iter().filter(|format| format.backend == Backend::File).collect()
}

fn name(format: &Format) -> String {
    format!("v{}", format.number)
}

/// Starts a target, sends it everything, ends it.
fn run(kind: Kind, formats: &[Format]) -> Outcome {
    // What is about the rules is not about the disk.
    let folder = tempfile::tempdir_in("/dev/shm").expect("a temporary folder can be made");
    let last = |first: u8| IpAddr::from(Ipv4Addr::new(127, 0, first, kind.number));
    let (address, metrics) = (last(41), SocketAddr::new(last(41), 9420));
    let mut command = Command::new(program("intact"));
    if kind.loses {
        command.env("INTACT_FAULT_LOSS", LOSS).env("INTACT_FAULT_SEED", "5");
    }
    let mut target = Target::start(command, &configuration(kind, formats, folder.path(), address), 1);
    let longest = formats.iter().map(Format::stride).max().unwrap_or(0);
    let mut host = Host::connect(&HostConfig {
        local: last(42),
        target: SocketAddr::new(address, 4420),
        nqn: NQN.to_owned(),
        hostnqn: format!("{NQN}-host"),
        queues: 1,
        depth: 4,
        slot_len: BLOCKS * longest,
        keys: Keys::Lasting,
    });
    let mut answers = Vec::new();
    for (nsid, format) in (1..).zip(formats) {
        send_all(&mut host, nsid, format, &mut answers);
    }
    let signatures = Metrics::scrape(metrics).sum("intact_protection_signatures_total", "");
    assert_eq!(signatures > 0, kind.checker == Checker::Device, "{signatures} transfers with signatures");
    host.close();
    assert!(target.terminate(Duration::from_secs(20)).success(), "{}", target.log());
    let files = formats.iter().flat_map(|format| [name(format), format!("{}.pi", name(format))]);
    let media = files.filter_map(|file| {
        let bytes = std::fs::read(folder.path().join(&file)).ok()?;
        Some((file, bytes))
    });
    Outcome { answers, media: media.collect() }
}

/// Every damage in every command to one volume.
fn send_all(host: &mut Host, nsid: u32, format: &Format, answers: &mut Vec<Answer>) {
    let scene = Scene::new(format);
    let whole = scene.fresh.concat();
    let bare = if format.leading() == 0 { format.block } else { format.stride() };
    let stripped =
        |blocks: &[Vec<u8>]| blocks.iter().flat_map(|block| &block[..bare]).copied().collect::<Vec<u8>>();
    let mut send = |what: &str, op, action, checks, data: &[u8]| {
        let (op, length) = io_op(format, op, action, checks, &scene.tags, data.len());
        let slot = host.wait_for_slot(|_, early| panic!("{early:?} was awaited"));
        host.fill(slot, data);
        host.carry_at_most(0);
        host.submit(slot, nsid, op, length);
        let done = host.next_done().expect("a command is under way");
        host.release(slot);
        let status = done.status;
        let entry = (!status.is_success()).then(|| newest_error(host));
        answers.push(Answer { what: format!("{what} on {format}"), status: status.code(), entry });
    };
    send("a sound Write", Op::Write, Action::Pass, Checks::ALL, &whole);
    for damage in Damage::ALL {
        let Some(damaged) = damage.apply(format, &scene) else { continue };
        let bytes = damaged.concat();
        let mut with = |what: &str, op, action, checks, data: &[u8]| {
            send(&format!("{damage:?}: {what}"), op, action, checks, data);
        };
        with("Compare", Op::Compare, Action::Pass, Checks::ALL, &bytes);
        with("Write", Op::Write, Action::Pass, Checks::ALL, &bytes);
        with("Write without checks", Op::Write, Action::Pass, Checks::NONE, &bytes);
        with("Verify", Op::Verify, Action::Pass, Checks::ALL, &[]);
        with("Compare with it", Op::Compare, Action::Pass, Checks::NONE, &bytes);
        if format.protection.is_some() {
            with("Write that inserts", Op::Write, Action::Act, Checks::ALL, &stripped(&damaged));
        }
        with("Write over it", Op::Write, Action::Pass, Checks::ALL, &whole);
    }
}

/// The newest entry of the error log: status, LBA, namespace.
fn newest_error(host: &mut Host) -> (u16, u64, u32) {
    let mut bytes = [0; size_of::<ErrorEntry>()];
    let page = host.controller().log_page(lid::ERROR_INFORMATION, u32::MAX, 0, &mut bytes);
    page.unwrap_or_else(|error| panic!("{error}"));
    let entry = ErrorEntry::read_from_bytes(&bytes).expect("an entry has 64 bytes");
    (entry.status.get(), entry.lba.get(), entry.nsid.get())
}

fn configuration(kind: Kind, formats: &[Format], folder: &Path, address: IpAddr) -> String {
    let mut text = format!(
        "[device]\naddress = \"{address}\"\nintegrity = \"{}\"\n{}[metrics]\naddress = \"{address}:9420\"\n",
        kind.checker.integrity(),
        kind.persona.map_or(String::new(), |persona| format!("persona = \"{persona}\"\n"))
    );
    for format in formats {
        text += &format!(
            "[[volume]]\nname = \"{0}\"\nfile = \"{1}/{0}\"\nsize = {2}\nblock_size = {3}\nprotection = {4}\n",
            name(format),
            folder.display(),
            VOLUME * format.block,
            format.block,
            format.config()
        );
    }
    text += &format!("[[nvme.subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n");
    for format in formats {
        text += &format!("[[nvme.subsystem.namespace]]\nvolume = \"{}\"\n", name(format));
    }
    text
}

/// Asserts that both came to the same.
fn assert_same(software: &Outcome, other: &Outcome, what: &str) {
    assert_eq!(software.answers.len(), other.answers.len(), "{what}");
    for (one, another) in software.answers.iter().zip(&other.answers) {
        assert_eq!(one, another, "{what}");
    }
    for ((file, one), (_, another)) in software.media.iter().zip(&other.media) {
        assert!(one == another, "{what}: {file} differs");
    }
    assert!(software == other, "{what}: as many media");
}

const SOFTWARE: Kind = Kind { checker: Checker::Software, persona: None, loses: false, number: 0 };
const DEVICE: Kind = Kind { checker: Checker::Device, ..SOFTWARE };

#[test]
fn the_device_answers_as_software_does() {
    let formats = formats();
    let software = run(Kind { number: 1, ..SOFTWARE }, &formats);
    let failed = software.answers.iter().filter(|answer| answer.status != 0).count();
    assert!(failed > 1000 && failed < software.answers.len() / 2, "{failed} of {}", software.answers.len());
    assert_same(&software, &run(Kind { number: 2, ..DEVICE }, &formats), "the soft device");
}

#[test]
fn devices_like_others_answer_as_software_does() {
    // Some of every guard, type and layout.
    let formats: Vec<Format> = formats().into_iter().step_by(5).collect();
    let software = run(Kind { number: 3, ..SOFTWARE }, &formats);
    for (number, persona, checker) in [
        (4, "rxe", Checker::Device),
        (5, "mlx5", Checker::Device),
        (6, "mlx5", Checker::Software),
        (7, "iwarp", Checker::Software),
    ] {
        let kind = Kind { checker, persona: Some(persona), number, ..SOFTWARE };
        assert_same(&software, &run(kind, &formats), &format!("{persona}, {checker:?}"));
    }
}

#[cfg(feature = "_fault")]
#[test]
fn the_device_answers_as_software_does_while_packets_are_lost() {
    let formats: Vec<Format> = formats().into_iter().step_by(5).collect();
    let software = run(Kind { number: 8, ..SOFTWARE }, &formats);
    assert_same(&software, &run(Kind { number: 9, loses: true, ..DEVICE }, &formats), "with losses");
    let mlx5 = Kind { number: 10, loses: true, persona: Some("mlx5"), ..DEVICE };
    assert_same(&software, &run(mlx5, &formats), "with losses, as mlx5");
}
