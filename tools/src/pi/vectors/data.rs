//! The contents of blocks as vectors describe them.

use super::Malformed;
use super::value::{Object, hex, number};

/// Expands the user data of a vector.
pub(super) fn data(vector: &Object<'_>) -> Result<Vec<u8>, Malformed> {
    let data = vector.object("data")?;
    match data.text("enc")? {
        "hex" => {
            data.only(&["enc", "hex"])?;
            data.hex("hex")
        }
        "blocks" => {
            data.only(&["enc", "len", "blocks"])?;
            let recipes = data.list("blocks")?;
            let length = data.count("len", recipes.len())?;
            let mut bytes = Vec::new();
            for recipe in recipes {
                bytes.extend(block(&Object::new(recipe, "data.blocks")?, length)?);
            }
            Ok(bytes)
        }
        _ => Err(data.refuse("enc", "is neither hex nor blocks")),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "byte patterns wrap")]
fn block(recipe: &Object<'_>, length: usize) -> Result<Vec<u8>, Malformed> {
    recipe.only(&["g", "s", "b", "x"])?;
    let first = || recipe.small::<u8>("b");
    let mut bytes = match recipe.text("g")? {
        "sm64" => split_mix(recipe.number("s")?, length),
        "fill" => vec![first()?; length],
        "inc" => {
            let first = first()?;
            (0..length).map(|i| first.wrapping_add(i as u8)).collect()
        }
        "dec" => {
            let first = first()?;
            (0..length).map(|i| first.wrapping_sub(i as u8)).collect()
        }
        other => {
            return Err(recipe.refuse("g", &format!("is {other:?}, which is none of sm64, fill, inc, dec")));
        }
    };
    if recipe.has("x") {
        for change in recipe.list("x")? {
            let parsed = change.as_array().and_then(|pair| match pair.as_slice() {
                [at, flips] => Some((usize::try_from(number(at)?).ok()?, hex(flips.as_str()?)?)),
                _ => None,
            });
            let (at, flips) = parsed
                .ok_or_else(|| recipe.refuse("x", "is not pairs of an offset and hexadecimal digits"))?;
            let area = at.checked_add(flips.len()).and_then(|end| bytes.get_mut(at..end));
            let area = area.ok_or_else(|| recipe.refuse("x", "reaches outside the block"))?;
            area.iter_mut().zip(flips).for_each(|(byte, flip)| *byte ^= flip);
        }
    }
    Ok(bytes)
}

/// SplitMix64, each output as eight little-endian bytes.
fn split_mix(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        bytes.extend_from_slice(&(z ^ z >> 31).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
