//! Time per packet of making and checking the ICRC. Run: `cargo bench -p rwctx --bench icrc`.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::cast_precision_loss, reason = "a printed average")]

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Instant;

use rwctx::device::soft::RxMeta;
use rwctx::device::soft::icrc::{IcrcChecker, IcrcFlow};

const ROUNDS: u32 = 20_000;

/// Prints the best average of many short runs: the machine may be busy.
fn time(name: &str, length: usize, mut packet: impl FnMut(u32)) {
    let mut best = f64::INFINITY;
    for _ in 0..100 {
        let start = Instant::now();
        for round in 0..ROUNDS {
            packet(round);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
    }
    println!("{name:<44} {length:>5} B {best:>8.1} ns");
}

#[expect(clippy::cast_possible_truncation, reason = "identifications wrap")]
fn main() {
    let src: IpAddr = [127, 0, 0, 1].into();
    let dst: IpAddr = [127, 0, 0, 2].into();
    let meta = RxMeta { src, dst, src_port: 0xC123 };
    let flow = IcrcFlow::new(src, dst, meta.src_port);
    for length in [16_usize, 32, 36, 1056, 4112, 4128] {
        let header = [0x04, 0x40, 0xFF, 0xFF, 0, 0, 0, 0x11, 0x80, 0, 0, 1];
        let payload = vec![0x5A; length - header.len() - 4];
        time("send: begin, one piece, finish", length, |round| {
            let mut icrc = flow.begin(round as u16, black_box(&header), payload.len());
            icrc.update(black_box(&payload));
            black_box(icrc.finish());
        });
        let packets: Vec<Vec<u8>> = (0..64_u16)
            .map(|id| {
                let mut icrc = flow.begin(id, &header, payload.len());
                icrc.update(&payload);
                let mut packet = header.to_vec();
                packet.extend(&payload);
                packet.extend(icrc.finish().as_bytes());
                packet
            })
            .collect();
        let mut checker = IcrcChecker::new();
        time("check: identification as expected", length, |round| {
            assert!(checker.check(&meta, black_box(&packets[round as usize % 64])));
        });
        time("check: identification solved", length, |round| {
            assert!(checker.check(&meta, black_box(&packets[(round as usize * 17) % 64])));
        });
    }
}
