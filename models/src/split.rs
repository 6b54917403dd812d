//! One decoder over a group of devices: each member holds a part of every layer ([`crate::share`]) and runs the same step.

use lifelong_kernels::{Device, Error as KernelError, KvCache, Values};

use crate::architecture::{Batch, Decoder, Geometry, Scratch, check_batch};
use crate::error::Result;

/// A decoder in parts.
pub(crate) struct Split {
    /// In order of rank.
    parts: Vec<Box<dyn Decoder>>,
}

impl Split {
    /// Loads the part of each member of a group, one after the other: packing takes all threads, and memory for one part.
    ///
    /// # Errors
    /// Of loading a part.
    pub fn load(group: &Device, load: impl Fn(&Device) -> Result<Box<dyn Decoder>>) -> Result<Self> {
        Ok(Split { parts: group.members().iter().map(load).collect::<Result<_>>()? })
    }
}

impl Decoder for Split {
    /// That of the whole.
    fn geometry(&self) -> &Geometry {
        self.parts[0].geometry()
    }

    fn notes(&self) -> &[String] {
        self.parts[0].notes()
    }

    fn forward(
        &self,
        device: &Device,
        batch: &Batch,
        cache: &mut KvCache,
        scratch: &mut Scratch,
        logits: &mut Values,
    ) -> Result<()> {
        check_batch(batch, self.geometry())?;
        let (parts, caches) = (&self.parts, cache.parts_mut());
        if device.members().len() != parts.len() || caches.len() != parts.len() {
            let found = format!("{} devices and a cache of {}", device.members().len(), caches.len());
            return Err(KernelError::Group(format!("a model in {} parts, {found}", parts.len())).into());
        }
        scratch.parts.resize_with(parts.len(), Scratch::default);
        // The first has the logits; what others are given stays empty.
        let mut none: Vec<Values> = (1..parts.len()).map(|_| Values::default()).collect();
        let logits = std::iter::once(logits).chain(&mut none);
        let shares = parts.iter().zip(caches).zip(&mut scratch.parts).zip(logits).collect();
        device.together(shares, |member, (((part, cache), scratch), logits)| {
            part.forward(member, batch, cache, scratch, logits)
        })
    }
}
