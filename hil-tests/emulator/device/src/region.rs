//! Registers memory as regions with a key, and changes regions.

use crate::device::{Device, Error};
use crate::memory::Memory;
use crate::object::mkey::{Access, Layout, Mkey, MkeyAttributes};
use mlx5_mkey::types::{Key, MkeyIndex};

/// The place of a region in memory, and in the address space of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The first address of the region in memory.
    pub address: u64,
    /// The address that requests use for the first byte (`iova`).
    pub start: u64,
    /// Length of the region in bytes.
    pub length: u64,
}

/// The properties of a region that change. `None` leaves a property as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionChange {
    /// The new protection domain.
    pub pd: Option<u32>,
    /// The new place in memory.
    pub placement: Option<Placement>,
    /// The new access rights.
    pub access: Option<Access>,
}

impl Placement {
    fn check(&self) -> Result<(), Error> {
        let ends = |first: u64| first.checked_add(self.length);
        let inside = ends(self.address).and(ends(self.start)).is_some();
        if inside { Ok(()) } else { Err(Error::BadAttribute("region")) }
    }
}

impl<M: Memory> Device<M> {
    /// Registers `length` bytes at `address` and returns their key, which is both the local and the remote
    /// key.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`] for the domain, [`Error::BadAttribute`] for a range past the end of the
    /// address space.
    pub fn register(&mut self, pd: u32, address: u64, length: u64, access: Access) -> Result<Key, Error> {
        self.register_at(pd, address, address, length, access)
    }

    /// Registers `length` bytes at `address`. Requests use `start` as the address of the first byte (REG_MR
    /// with an `iova`).
    ///
    /// # Errors
    /// The errors of [`Device::register`].
    pub fn register_at(
        &mut self,
        pd: u32,
        address: u64,
        start: u64,
        length: u64,
        access: Access,
    ) -> Result<Key, Error> {
        self.known_pd(pd)?;
        Placement { address, start, length }.check()?;
        self.insert_mkey(Mkey::region(pd, address, start, length, access))
    }

    /// Makes a region with the protection domain, the access rights, the relaxed ordering and the tag of
    /// `attributes`, as the command of a program asks.
    ///
    /// # Errors
    /// The errors of [`Device::register`].
    pub fn register_with(&mut self, attributes: MkeyAttributes, place: Placement) -> Result<Key, Error> {
        let MkeyAttributes { pd, tag, access, relaxed_ordering, .. } = attributes;
        self.known_pd(pd)?;
        place.check()?;
        let Placement { address, start, length } = place;
        self.insert_mkey(Mkey { tag, relaxed_ordering, ..Mkey::region(pd, address, start, length, access) })
    }

    /// Relaxes or restores the order of writes to a region and of reads from it
    /// (`IBV_ACCESS_RELAXED_ORDERING`). This device keeps the order in both cases.
    ///
    /// # Errors
    /// [`Error::NoSuchObject`].
    pub fn set_relaxed_order(&mut self, index: MkeyIndex, relaxed: bool) -> Result<(), Error> {
        let number = index.get();
        let mkey = self.objects.mkeys.get_mut(number).ok_or(Error::NoSuchObject { what: "mkey", number })?;
        mkey.relaxed_ordering = [relaxed; 2];
        Ok(())
    }

    /// Changes a region, which keeps its key (REREG_MR).
    ///
    /// # Errors
    /// [`Error::NoSuchObject`] for key or domain, [`Error::BadAttribute`] for a key that is no region, or a
    /// range past the end of the address space.
    pub fn reregister(&mut self, index: MkeyIndex, change: RegionChange) -> Result<(), Error> {
        if let Some(pd) = change.pd {
            self.known_pd(pd)?;
        }
        if let Some(placement) = change.placement {
            placement.check()?;
        }
        let number = index.get();
        let mkey = self.objects.mkeys.get_mut(number).ok_or(Error::NoSuchObject { what: "mkey", number })?;
        let Layout::Direct(memory) = &mut mkey.layout else { return Err(Error::BadAttribute("region")) };
        if let Some(Placement { address, start, length }) = change.placement {
            (*memory, mkey.start, mkey.length) = (address, start, length);
        }
        mkey.pd = change.pd.unwrap_or(mkey.pd);
        mkey.access = change.access.unwrap_or(mkey.access);
        Ok(())
    }
}
