//! Checkpoints without files: every tensor that is asked for is drawn at random, from its name.
//!
//! For checks and measurements, which need a model of a shape and not its knowledge. Large matrices are drawn where the device
//! reads them, so a model of any size is there in a second.

use std::sync::OnceLock;

use lifelong_kernels::{Draw, Format};

/// What a drawn checkpoint holds.
#[derive(Debug)]
pub(crate) struct Drawn {
    seed: u64,
    /// Of matrices; vectors are f32.
    pub(crate) format: Format,
    /// Ends of the names of optional tensors that are there.
    present: &'static [&'static str],
    first: Link,
}

/// Tensors in the order in which they were asked for. They stay where they are until the checkpoint goes.
type Link = OnceLock<Box<Tensor>>;

#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) format: Format,
    pub(crate) bytes: Vec<u8>,
    next: Link,
}

impl Drawn {
    pub(crate) fn new(seed: u64, format: Format, present: &'static [&'static str]) -> Self {
        Drawn { seed, format, present, first: Link::new() }
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.present.iter().any(|end| name.ends_with(end))
    }

    /// How the numbers of a matrix with so many inputs are drawn: a product with rows of unit variance has unit variance.
    pub(crate) fn draw(&self, name: &str, inputs: usize) -> Draw {
        // The variance of a number drawn from [−r, r) is r²/3.
        Draw { key: key(self.seed, name), reach: (3.0 / inputs as f32).sqrt() }
    }

    /// A tensor, drawn when it is asked for first. Vectors that are factors lie around 1, others around 0.
    pub(crate) fn tensor(&self, name: &str, shape: &[usize]) -> &Tensor {
        let mut link = &self.first;
        loop {
            let tensor = link.get_or_init(|| Box::new(self.drawn(name, shape)));
            if tensor.name == name && tensor.shape == shape {
                return tensor;
            }
            link = &tensor.next;
        }
    }

    fn drawn(&self, name: &str, shape: &[usize]) -> Tensor {
        let count = shape.iter().product();
        let (format, bytes) = match shape {
            [_] => (Format::F32, self.vector(name, count)),
            [.., inputs] => {
                let bytes = self.draw(name, *inputs).bytes(self.format, count);
                (self.format, bytes.expect("matrices are drawn as plain numbers"))
            }
            [] => (Format::F32, self.vector(name, 1)),
        };
        Tensor { name: name.to_string(), shape: shape.to_vec(), format, bytes, next: Link::new() }
    }

    fn vector(&self, name: &str, count: usize) -> Vec<u8> {
        let draw = Draw { key: key(self.seed, name), reach: 0.25 };
        let mut bytes = draw.bytes(Format::F32, count).expect("f32 is a plain format");
        if is_factor(name) {
            for number in bytes.chunks_exact_mut(4) {
                let value = f32::from_le_bytes([number[0], number[1], number[2], number[3]]) + 1.0;
                number.copy_from_slice(&value.to_le_bytes());
            }
        }
        bytes
    }
}

fn is_factor(name: &str) -> bool {
    name.to_ascii_lowercase().contains("norm") && name.ends_with("weight")
}

/// FNV-1a over the name, from the seed on: any mixing does, as Philox mixes again.
fn key(seed: u64, name: &str) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    name.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_a_function_of_seed_and_name() {
        let drawn = |seed| Drawn::new(seed, Format::F32, &["lm_head.weight"]);
        let (one, again, other) = (drawn(1), drawn(1), drawn(2));
        let shape = [3, 4];
        let bytes = one.tensor("a.weight", &shape).bytes.clone();
        assert_eq!(one.tensor("b_norm.weight", &[5]).bytes.len(), 20);
        again.tensor("b_norm.weight", &[5]);
        assert_eq!(again.tensor("a.weight", &shape).bytes, bytes);
        assert!(std::ptr::eq(one.tensor("a.weight", &shape), one.tensor("a.weight", &shape)));
        assert_ne!(other.tensor("a.weight", &shape).bytes, bytes);
        assert_ne!(one.tensor("c.weight", &shape).bytes, bytes);
        assert!(one.contains("lm_head.weight") && !one.contains("lm_head.bias"));
        let norm = &one.tensor("b_norm.weight", &[5]).bytes;
        let first = f32::from_le_bytes([norm[0], norm[1], norm[2], norm[3]]);
        assert!((0.75..1.25).contains(&first), "{first}");
    }
}
