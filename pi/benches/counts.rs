//! One operation on fixed inputs, for `./test.sh counts`: valgrind counts the instructions in [`measured`], which no other
//! work of the machine changes. `counts.txt` beside this file has what was counted.
//!
//! `counts list` prints the cases, `counts CASE` runs one with the kernel that `T10PI_KERNEL` names.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot run must stop")]

use std::env;
use std::hint::black_box;

use t10pi::{Checks, Format, Guard, Kernel, PiContext, PiType, Tags};

const FORMATS: [(&str, Guard, u32, u16); 4] = [
    ("512+8", Guard::Crc16, 512, 8),
    ("4096+8", Guard::Crc16, 4096, 8),
    ("4096+16-32b", Guard::Crc32c, 4096, 16),
    ("4096+16-64b", Guard::Crc64, 4096, 16),
];
const OPERATIONS: [&str; 4] = ["generate", "verify", "insert", "strip"];

/// User data of a run, in bytes.
const BYTES: usize = 16 << 10;

fn main() {
    let argument = env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    for (name, guard, block, metadata) in FORMATS {
        for operation in OPERATIONS {
            let case = format!("{operation}-{name}");
            if argument == "list" {
                println!("{case}");
            } else if argument.is_empty() || argument == case {
                // Without a case, this only shows that everything runs.
                run(operation, &Format::new(guard, block, metadata).unwrap());
            }
        }
    }
}

fn run(operation: &str, format: &Format) {
    let kernel = Kernel::from_env().unwrap();
    let pi = PiContext::with_kernel(format, PiType::Type1, Checks::ALL, Tags::default(), kernel).unwrap();
    let mut data: Vec<u8> = (0..=255).cycle().take(BYTES).collect();
    let blocks = BYTES / format.block_size() as usize;
    let mut stream = vec![0; blocks * format.interleaved_block_size()];
    pi.insert(&[&data], &mut [&mut stream]);
    measured(operation, &pi, &mut data, &mut stream);
}

#[inline(never)]
fn measured(operation: &str, pi: &PiContext, data: &mut [u8], stream: &mut [u8]) {
    match operation {
        "generate" => pi.generate_interleaved(&mut [black_box(stream)]),
        "verify" => pi.verify_interleaved(&[black_box(stream)]).unwrap(),
        "insert" => pi.insert(&[black_box(data)], &mut [stream]),
        _ => pi.strip(&[black_box(stream)], &mut [data]).unwrap(),
    }
}
