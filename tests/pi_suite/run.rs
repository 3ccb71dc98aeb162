//! Runs the suite against a target, and says what it saw.

use std::future::Future;
use std::net::IpAddr;
use std::task::{Context, Poll, Waker};

use intact::block::fault::{self, Moment};
use rwctx::device::soft::fault::{Tampering, tamper};
use t10pi::{PiContext, PiType};

use super::command::{Action, Carried, Op};
use super::damage::{BLOCKS, Damage, SLBA, Scene, Verdict};
use super::format::{Format, Guard};
use super::oracle::{Checks, Field, Finding};
use super::point::{Checker, Point};
use super::table::{Outcome, Tally};
use super::world::{Answer, Log, WORLDS, World, name};

/// Formats of a world that have a command under way.
const AT_ONCE: usize = 24;
/// Failures that are shown.
const SHOWN: usize = 20;

/// Damages every format in every way everywhere.
///
/// # Panics
/// When something else became of a command than the standard says; names the first few.
pub(crate) fn run(formats: &[Format], checker: Checker) -> Tally {
    let log = Log::start();
    let worlds: Vec<_> = std::thread::scope(|scope| {
        let one = |index| {
            let log = &log;
            scope.spawn(move || {
                let mine = formats.iter().filter(|format| format.number % WORLDS == index);
                run_one(index, &mine.copied().collect::<Vec<_>>(), log, checker)
            })
        };
        let threads: Vec<_> = (0..WORLDS).map(one).collect();
        threads.into_iter().map(|thread| thread.join().expect("it says what is wrong by itself")).collect()
    });
    let mut tally = Tally::new(formats.len());
    let mut failures = Vec::new();
    for (seen, failed) in worlds {
        tally.add(&seen);
        failures.extend(failed);
    }
    let count = failures.len();
    assert!(count == 0, "{count} cases failed:\n{}", failures[..count.min(SHOWN)].join("\n"));
    tally
}

/// The same for the formats of one world: what it saw, and what was wrong.
fn run_one(index: usize, formats: &[Format], log: &Log, checker: Checker) -> (Tally, Vec<String>) {
    let world = World::start(index, formats, log, checker);
    let (mut tally, mut failures) = (Tally::new(0), Vec::new());
    let mut waiting = formats.iter();
    let mut running: Vec<_> =
        waiting.by_ref().take(AT_ONCE).map(|one| Box::pin(run_format(&world, one))).collect();
    let mut context = Context::from_waker(Waker::noop());
    while !running.is_empty() {
        running.retain_mut(|format| {
            loop {
                let Poll::Ready((seen, failed)) = format.as_mut().poll(&mut context) else { return true };
                tally.add(&seen);
                failures.extend(failed);
                let Some(next) = waiting.next() else { return false };
                format.set(run_format(&world, next));
            }
        });
        world.round();
    }
    drop(running);
    world.end();
    (tally, failures)
}

/// The same for a format.
async fn run_format(world: &World, format: &Format) -> (Tally, Vec<String>) {
    let (mut tally, mut failures) = (Tally::new(0), Vec::new());
    let scene = Scene::new(format);
    for damage in Damage::ALL {
        let Some(damaged) = damage.apply(format, &scene) else { continue };
        for point in Point::ALL {
            let Some(verdict) = point.expect(damage, format) else { continue };
            let (scene, damaged) = (&scene, &damaged[..]);
            let mut case = Case { world, format, scene, damaged, point, verdict, tampering: None };
            match case.run().await {
                Ok(outcome) => tally.count(damage, point, outcome),
                Err(why) => failures.push(format!("{damage:?} at {point:?} of {format}: {why}")),
            }
        }
    }
    (tally, failures)
}

/// One damage of one format at one place.
struct Case<'c> {
    world: &'c World,
    format: &'c Format,
    scene: &'c Scene,
    damaged: &'c [Vec<u8>],
    point: Point,
    /// What the standard says.
    verdict: Verdict,
    /// What is to happen on the wire.
    tampering: Option<Tampering>,
}

impl Case<'_> {
    async fn run(&mut self) -> Result<Outcome, String> {
        match self.point {
            Point::Host | Point::Unchecked => self.write(&self.damaged.concat(), Carried::Fetched).await,
            Point::Capsule => self.write(&self.damaged.concat(), Carried::InCapsule).await,
            Point::Compared => self.compare().await,
            Point::Inserted => self.insert().await,
            Point::Wire => {
                self.tamper(self.world.host_address);
                self.write(&self.scene.fresh.concat(), Carried::Fetched).await
            }
            Point::WireCapsule => {
                self.tamper(self.world.host_address);
                self.write(&self.scene.fresh.concat(), Carried::InCapsule).await
            }
            // The device has looked by then: who notices is who would after a check in software.
            Point::Arrived if self.world.checker == Checker::Device => {
                self.point = Point::Checked;
                self.write_after_the_check(Moment::Arrived).await
            }
            Point::Arrived => {
                self.damage_at(Moment::Arrived);
                self.write(&self.scene.fresh.concat(), Carried::Fetched).await
            }
            Point::Checked => self.write_after_the_check(Moment::Checked).await,
            Point::Medium => self.use_medium().await,
            Point::Read => self.read_before_the_check().await,
            Point::Leaving => {
                self.damage_at(Moment::Leaving);
                self.read_behind_the_check().await
            }
            Point::WireBack => {
                self.tamper(self.world.target_address);
                self.read_behind_the_check().await
            }
            Point::Stripped => self.strip().await,
            Point::NoGuard | Point::NoApp | Point::NoStorage | Point::NoRef | Point::NoCheck => {
                self.put(self.damaged);
                self.verify().await
            }
        }
    }

    /// A Write, of which the target sees the damaged blocks.
    async fn write(&mut self, data: &[u8], carried: Carried) -> Result<Outcome, String> {
        self.put(&self.scene.stale);
        let answer = self.command(Op::Write, Action::Pass, self.point.checks(), data, carried).await;
        self.nothing_is_left()?;
        let outcome = self.judged(&answer)?;
        match self.verdict {
            Verdict::Caught { .. } => {
                self.medium_has(&self.scene.stale, "a Write that fails changes nothing")?;
            }
            Verdict::Passes(_) => {
                self.medium_has(self.damaged, "what passes is stored as it came")?;
            }
        }
        Ok(outcome)
    }

    /// A Write whose damage nobody sees; the next command does.
    async fn write_after_the_check(&mut self, moment: Moment) -> Result<Outcome, String> {
        self.put(&self.scene.stale);
        self.damage_at(moment);
        let answer = self
            .command(Op::Write, Action::Pass, Checks::ALL, &self.scene.fresh.concat(), Carried::Fetched)
            .await;
        self.nothing_is_left()?;
        succeeded(&answer, "the Write")?;
        self.medium_has(self.damaged, "what was damaged is stored")?;
        self.verify().await
    }

    async fn compare(&mut self) -> Result<Outcome, String> {
        self.put(&self.scene.fresh);
        self.compare_with(self.damaged).await
    }

    /// A Compare whose host has these blocks.
    async fn compare_with(&mut self, blocks: &[Vec<u8>]) -> Result<Outcome, String> {
        let answer =
            self.command(Op::Compare, Action::Pass, Checks::ALL, &blocks.concat(), Carried::Fetched).await;
        if let Verdict::Passes(reason) = self.verdict {
            // Tuples are checked, not compared.
            let compared = self.format.block + self.format.leading();
            let same = self
                .damaged
                .iter()
                .zip(&self.scene.fresh)
                .all(|(one, other)| one[..compared] == other[..compared]);
            let wanted = if same { (0, 0) } else { (2, 0x85) };
            return if code(&answer) == wanted && answer.log.is_empty() {
                Ok(Outcome::Passed(reason))
            } else {
                Err(format!("the Compare ended with {} {:?}", answer.status, answer.log))
            };
        }
        self.judged(&answer)
    }

    /// Commands to a damaged medium.
    async fn use_medium(&mut self) -> Result<Outcome, String> {
        self.put(self.damaged);
        let outcome = self.verify().await?;
        let stripped = self.format.leading() == 0;
        for action in [Action::Pass, Action::Act] {
            let answer = self.command(Op::Read, action, Checks::ALL, &[], Carried::Fetched).await;
            self.judged(&answer)?;
            if let Verdict::Passes(_) = self.verdict {
                let each =
                    if action == Action::Act && stripped { self.format.block } else { self.format.stride() };
                let wanted: Vec<u8> = self.damaged.iter().flat_map(|block| &block[..each]).copied().collect();
                same(&answer.data, &wanted, "what passes is read as it is")?;
            }
        }
        self.compare_with(&self.scene.fresh).await?;
        self.medium_has(self.damaged, "looking changes nothing")?;
        Ok(outcome)
    }

    async fn verify(&mut self) -> Result<Outcome, String> {
        let answer = self.command(Op::Verify, Action::Pass, self.point.checks(), &[], Carried::Fetched).await;
        self.judged(&answer)
    }

    async fn read_before_the_check(&mut self) -> Result<Outcome, String> {
        self.put(&self.scene.fresh);
        self.damage_at(Moment::Read);
        let answer = self.command(Op::Read, Action::Pass, Checks::ALL, &[], Carried::Fetched).await;
        self.nothing_is_left()?;
        if let Verdict::Passes(_) = self.verdict {
            same(&answer.data, &self.damaged.concat(), "what passes is read as it is")?;
        }
        self.medium_has(&self.scene.fresh, "the medium is not what is damaged")?;
        self.judged(&answer)
    }

    /// A Read whose damage the target can't see: the host checks what it got.
    async fn read_behind_the_check(&mut self) -> Result<Outcome, String> {
        self.put(&self.scene.fresh);
        let answer = self.command(Op::Read, Action::Pass, Checks::ALL, &[], Carried::Fetched).await;
        self.nothing_is_left()?;
        succeeded(&answer, "the Read")?;
        same(&answer.data, &self.damaged.concat(), "the damage reaches the host")?;
        let found = self.checked_by_host(&answer.data);
        match (self.verdict, found) {
            (Verdict::Passes(reason), None) => Ok(Outcome::Passed(reason)),
            (Verdict::Caught { block, field }, Some(found)) if found == (block, field) => {
                Ok(Outcome::Caught(field))
            }
            (verdict, found) => Err(format!("the host finds {found:?}, not {verdict:?}")),
        }
    }

    /// A Write whose tuples the target makes, of damaged data.
    async fn insert(&mut self) -> Result<Outcome, String> {
        self.put(&self.scene.stale);
        let each = if self.format.leading() == 0 { self.format.block } else { self.format.stride() };
        let data: Vec<u8> = self.damaged.iter().flat_map(|block| &block[..each]).copied().collect();
        let answer = self.command(Op::Write, Action::Act, Checks::ALL, &data, Carried::Fetched).await;
        succeeded(&answer, "the Write")?;
        let payload = self.format.block + self.format.leading();
        let blocks = self.damaged.iter().enumerate();
        let made: Vec<Vec<u8>> = blocks
            .map(|(index, block)| self.format.seal(&block[..payload], &self.scene.tags, index))
            .collect();
        self.medium_has(&made, "tuples are made of what came")?;
        let answer = self.command(Op::Verify, Action::Pass, Checks::ALL, &[], Carried::Fetched).await;
        succeeded(&answer, "the Verify")?;
        Ok(self.verdict.into())
    }

    /// A Read whose tuples stay here, damaged on its way.
    async fn strip(&mut self) -> Result<Outcome, String> {
        self.put(&self.scene.fresh);
        let data = |blocks: &[Vec<u8>]| -> Vec<u8> {
            blocks.iter().flat_map(|block| &block[..self.format.block]).copied().collect()
        };
        let (fresh, damaged) = (data(&self.scene.fresh), data(self.damaged));
        self.tampering = Some(tamper(self.world.target_address, &fresh, &damaged));
        let answer = self.command(Op::Read, Action::Act, Checks::ALL, &[], Carried::Fetched).await;
        self.nothing_is_left()?;
        succeeded(&answer, "the Read")?;
        same(&answer.data, &damaged, "the damage reaches the host")?;
        Ok(self.verdict.into())
    }

    async fn command(
        &mut self,
        op: Op,
        action: Action,
        checks: Checks,
        data: &[u8],
        carried: Carried,
    ) -> Answer {
        self.world.command(self.format, op, action, checks, &self.scene.tags, (data, carried)).await
    }

    fn put(&self, blocks: &[Vec<u8>]) {
        self.world.medium(self.format).put(self.format, blocks);
    }

    fn medium_has(&self, blocks: &[Vec<u8>], why: &str) -> Result<(), String> {
        let stored = self.world.medium(self.format).blocks(self.format);
        match stored.iter().zip(blocks).position(|(stored, wanted)| stored != wanted) {
            None => Ok(()),
            Some(index) => Err(format!("{why}: block {index} differs on the medium")),
        }
    }

    /// Damages the next command's blocks on their way from this address.
    fn tamper(&mut self, sender: IpAddr) {
        self.tampering = Some(tamper(sender, &self.scene.fresh.concat(), &self.damaged.concat()));
    }

    /// Damages the next command's blocks in the target's memory.
    fn damage_at(&self, moment: Moment) {
        let volume = self.world.volume(self.format);
        for (index, (block, fresh)) in self.damaged.iter().zip(&self.scene.fresh).enumerate() {
            if block != fresh {
                let (data, md) = block.split_at(self.format.block);
                let lba = SLBA + index as u64;
                volume.damage_on_the_way(fault::Damage { moment, lba, data: data.to_vec(), md: md.to_vec() });
            }
        }
    }

    /// All damage happened.
    fn nothing_is_left(&mut self) -> Result<(), String> {
        let left = self.tampering.take().map_or(0, Tampering::left);
        let memory = self.world.volume(self.format).clear_damage().len();
        if (left, memory) == (0, 0) {
            Ok(())
        } else {
            Err(format!("{left} pieces on the wire and {memory} blocks in memory were not damaged"))
        }
    }

    /// What a command's answer says, if it is what it should be.
    fn judged(&self, answer: &Answer) -> Result<Outcome, String> {
        let (block, field) = match self.verdict {
            Verdict::Caught { block, field } => (block, field),
            Verdict::Passes(reason) => {
                return succeeded(answer, "the command").map(|()| Outcome::Passed(reason));
            }
        };
        if code(answer) != field.status() {
            return Err(format!(
                "it ended with {}, not for the {} of block {block}",
                answer.status,
                field.name()
            ));
        }
        let finding = self.format.judge(self.damaged, &self.scene.tags, self.point.checks());
        let Some(Finding { expected, actual, .. }) = finding else {
            return Err("the judge finds nothing".to_owned());
        };
        let lba = SLBA + block as u64;
        let hop = self.point.hop().expect("what the target notices has a hop");
        let wanted = format!(
            "volume=\"{}\" lba={lba} field=\"{}\" expected={expected:#x} actual={actual:#x} hop=\"{hop}\"",
            name(self.format),
            field.name()
        );
        match &answer.log[..] {
            [line] if line.contains(&wanted) => {}
            other => return Err(format!("the log has {other:?}, not {wanted}")),
        }
        match self.world.newest_error(self.format) {
            Some((status, logged)) if ((status.sct(), status.sc()), logged) == (field.status(), lba) => {}
            other => return Err(format!("the error log's new entry is {other:?}")),
        }
        Ok(Outcome::Caught(field))
    }

    /// The first failure that a host finds which checks what it read with the library.
    fn checked_by_host(&self, data: &[u8]) -> Option<(usize, Field)> {
        let protection = self.format.protection.as_ref()?;
        let guard = match protection.guard {
            Guard::Crc16 => t10pi::Guard::Crc16,
            Guard::Crc32c => t10pi::Guard::Crc32c,
            Guard::Crc64 => t10pi::Guard::Crc64,
        };
        let block = u32::try_from(self.format.block).expect("a block's size");
        let metadata = u16::try_from(protection.metadata).expect("at most 64");
        let bits = u8::try_from(protection.storage_bits).expect("at most 64");
        let format = t10pi::Format::new(guard, block, metadata)
            .and_then(|format| format.with_storage_tag(bits, protection.storage_mask))
            .expect("formats of the suite exist");
        let tags = &self.scene.tags;
        let tags = t10pi::Tags {
            app_tag: tags.app,
            app_tag_mask: tags.app_mask,
            storage_tag: tags.storage,
            ref_tag: tags.first_ref,
        };
        let pi_type = PiType::from_number(protection.pi_type).expect("types 1 to 3");
        let context = PiContext::new(&format, pi_type, t10pi::Checks::ALL, tags).expect("the tags fit");
        let failed = context.verify_interleaved(&[data]).err()?;
        let field = match failed.field {
            t10pi::Field::Guard => Field::Guard,
            t10pi::Field::AppTag => Field::App,
            t10pi::Field::StorageTag => Field::Storage,
            t10pi::Field::RefTag => Field::Ref,
        };
        Some((usize::try_from(failed.block).ok().filter(|block| *block < BLOCKS)?, field))
    }
}

fn code(answer: &Answer) -> (u8, u8) {
    (answer.status.sct(), answer.status.sc())
}

fn succeeded(answer: &Answer, what: &str) -> Result<(), String> {
    if answer.status.is_success() && answer.log.is_empty() {
        Ok(())
    } else {
        Err(format!("{what} ended with {} {:?}", answer.status, answer.log))
    }
}

fn same(seen: &[u8], wanted: &[u8], why: &str) -> Result<(), String> {
    if seen == wanted { Ok(()) } else { Err(format!("{why}: it differs")) }
}
