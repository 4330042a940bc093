//! A call of the kernel's interface that is being carried out, and functions that all methods share.

use crate::command::request::Request;
use crate::ground::errno::Errno;
use crate::ground::fault::Ending;
use crate::state::State;
use crate::state::channel::Kind;
use crate::state::object::{Context, Cq, Object};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A function that carries out a call.
pub(crate) type Run = fn(&mut Call<'_>) -> Result<(), Errno>;

/// A call of a program that is being carried out, and the state that it works on.
pub(crate) struct Call<'a> {
    pub(crate) state: &'a mut State,
    /// The number of the context (an opened device) that made the call.
    pub(crate) context: u32,
    pub(crate) request: &'a Request,
    /// The new file descriptor that the program gets if the call succeeds.
    pub(crate) made: Option<OwnedFd>,
}

impl Call<'_> {
    /// Makes a channel for events. Returns its number, and the descriptor that the program gets.
    pub(crate) fn open_channel(&mut self, kind: Kind) -> Result<(u32, RawFd), Errno> {
        let (number, descriptor) = self.state.open_channel(kind, self.context)?;
        let raw = descriptor.as_raw_fd();
        self.made = Some(descriptor);
        Ok((number, raw))
    }

    /// Returns the number of the channel whose descriptor an attribute holds, or `None` if the attribute is
    /// missing. The channel must belong to this call's context, and `wanted` must accept its kind.
    ///
    /// # Errors
    /// [`Errno::BADF`] for any other descriptor; [`Errno::INVAL`] for a number that does not fit into 32
    /// bits.
    pub(crate) fn channel(&self, id: u16, wanted: fn(Kind) -> bool) -> Result<Option<u32>, Errno> {
        let Some(descriptor) = self.request.descriptor(id)? else { return Ok(None) };
        let (number, channel) = self.state.channel_of(descriptor).ok_or(Errno::BADF)?;
        let fits = channel.is_of(self.context) && wanted(channel.kind());
        if fits { Ok(Some(number)) } else { Err(Errno::BADF) }
    }

    /// Returns the number of the channel for asynchronous events of a new object. An attribute names this
    /// channel. Without the attribute, the object uses the context's first channel for asynchronous events
    /// (`ib_uverbs_get_async_event`).
    ///
    /// # Errors
    /// The errors of [`Call::channel`].
    pub(crate) fn async_channel(&mut self, id: u16) -> Result<Option<u32>, Errno> {
        let named = self.channel(id, |kind| kind == Kind::Asynchronous)?;
        Ok(named.or(self.context()?.async_channel))
    }

    /// Returns the call's context.
    pub(crate) fn context(&mut self) -> Result<&mut Context, Errno> {
        self.state.contexts.get_mut(&self.context).ok_or(Errno::IO)
    }

    /// Returns the object with this handle in the call's context.
    pub(crate) fn object(&mut self, handle: u32) -> Result<&mut Object, Errno> {
        self.context()?.get_mut(handle).ok_or(Errno::NOENT)
    }

    /// Returns the number of the protection domain with this handle.
    pub(crate) fn pd(&mut self, handle: u32) -> Result<u32, Errno> {
        let Object::Pd(number) = self.object(handle)? else { return Err(Errno::INVAL) };
        Ok(*number)
    }

    /// Returns the completion queue with this handle.
    pub(crate) fn cq(&mut self, handle: u32) -> Result<&mut Cq, Errno> {
        let Object::Cq(cq) = self.object(handle)? else { return Err(Errno::INVAL) };
        Ok(cq)
    }

    /// Gives a new object a handle, and lets `tell` report the handle to the program. If the report fails,
    /// the object is destroyed.
    pub(crate) fn publish(
        &mut self,
        object: Object,
        tell: impl FnOnce(&Request, u32) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let is_queue = object.subject().is_some();
        let Some(handle) = self.context()?.insert(object.clone()) else {
            self.state.destroy(object)?;
            return Err(Errno::NOMEM);
        };
        if is_queue {
            self.state.touch();
        }
        let told = tell(self.request, handle);
        if told.is_err()
            && let Some(object) = self.context()?.remove(handle)
        {
            self.state.destroy(object)?;
        }
        told
    }

    /// Destroys the object whose handle is in the attribute `id`, if `wanted` accepts the object.
    pub(crate) fn destroy(&mut self, id: u16, wanted: impl FnOnce(&Object) -> bool) -> Result<(), Errno> {
        let handle = self.request.handle(id)?;
        let object = self.object(handle)?.clone();
        if !wanted(&object) {
            return Err(Errno::INVAL);
        }
        let context = self.context()?;
        if matches!(object, Object::Umem(_) | Object::Uar(_)) && context.is_base(handle) {
            return Err(Errno::BUSY);
        }
        if context.ending != Some(Ending::Removed) {
            self.state.destroy(object)?;
        }
        self.context()?.remove(handle);
        Ok(())
    }
}
