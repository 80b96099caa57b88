"""The local view of a key range: its entries as of the last batch, in a file on the executor's disk.

The view is only a cache of the log; deleting it at any moment does not change results. A batch does not change the
tree. It writes its changes to a pending file, and the next batch applies the file if the log's head has its token. So a
batch that fails, or is processed twice, does not affect the view. If the tree is older and there is no such file, the
tree is updated from the log's newer segments; otherwise, it is rebuilt from the whole log.
"""

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import attrs
import lmdb

from amadou.paths import make_directory
from amadou_runtime.store.log.files import ViewFiles, is_disk_error, local_disk
from amadou_runtime.store.log.limits import Limits
from amadou_runtime.store.log.merging import merged
from amadou_runtime.store.log.records import TableChanges, ViewDamagedError, difference, table_changes
from amadou_runtime.store.log.segments import NO_TOKEN, Head, Log
from amadou_runtime.store.log.tree import Kind, Tree, TreeMeta

_ENTRY = 20
"""Bytes that LMDB and the header add to an entry."""
_MAX_FACTOR = 2.5
"""Size of a tree, relative to the same entries without free space, at which it is written densely again. When random
entries come and go, LMDB's pages are half full; writing the tree densely would not change this for long.
"""
_MIN_CHANGED = 0.5
"""Changed entries that are worth a rewrite, relative to all entries."""

_open_trees: set[Path] = set()  # LMDB forbids a process to open a file twice


class _BusyError(Exception):
    """The shared view belongs to another attempt at present."""


@attrs.frozen
class Pending:
    """Changes of a batch.

    :param token: token of the head after the batch
    :param version: version of this head
    :param run: id of the run
    :param dropped: `True` if all older unlogged entries are dropped
    :param passed: see `TimeIndex.passed`
    """

    token: bytes
    version: int
    run: str
    dropped: bool
    passed: int | None
    changes: Mapping[Kind, TableChanges]

    def to_plain(self) -> list[Any]:
        """Return the changes in a form that can be packed."""
        tables = {kind.value: list(attrs.astuple(each, recurse=False)) for kind, each in self.changes.items()}
        return [self.token, self.version, self.run, self.dropped, self.passed, tables]

    @classmethod
    def from_plain(cls, plain: Any) -> "Pending":
        """Return the changes that `to_plain` converted."""
        token, version, run, dropped, passed, tables = plain
        changes = {Kind(kind): TableChanges(*lists) for kind, lists in tables.items()}
        return cls(token, version, run, dropped, passed, changes)


@attrs.frozen
class View:
    """An open view, at the log's head.

    :param has_unlogged: `True` if the view has the unlogged entries
    :param hit: `True` if the log's segments were not needed
    :param rebuild_seconds: time taken to read segments, to rewrite the tree, and to fill its index
    """

    tree: Tree
    files: ViewFiles
    limits: Limits
    has_unlogged: bool
    hit: bool
    rebuild_seconds: float
    is_private: bool = False

    def discard(self) -> None:
        """Remove the shared view, so that the next batch makes a new one."""
        with self.files.locked(self.limits.wait) as is_locked:
            if is_locked and self.files.current() == self.tree.path:
                self.files.discard()

    def write_pending(self, base: bytes, pending: Pending, size: int) -> None:
        """Keep the changes of a batch for the next batch.

        :param size: size of the changed entries
        """
        with local_disk(self.files.directory, size):
            self.files.write_pending(base, pending.token, pending.to_plain())


@contextmanager
def open_view(log: Log, directory: Path, run: str, limits: Limits, *, private: bool = False) -> Iterator[View]:
    """Open the view, and bring it to the log's head.

    :param run: id of the current run
    :param private: `True` to rebuild a view for this batch alone
    :raises RunError: the log is damaged; the local disk is full
    """
    with ExitStack() as stack:
        with local_disk(directory, _max_size(log.head, limits)):
            make_directory(directory)
            opening = _Opening(log, ViewFiles(directory), run, limits)
            try:
                view = opening.private(stack) if private else opening.shared(stack)
            except _BusyError:
                stack.close()
                view = opening.private(stack)
        yield view


@attrs.frozen
class _Opening:
    log: Log
    files: ViewFiles
    run: str
    limits: Limits
    started: float = attrs.field(factory=time.perf_counter)

    def shared(self, stack: ExitStack) -> View:
        with self.files.locked(self.limits.wait) as is_locked:
            if is_locked:
                return self._advanced(stack)
        if snapshot := self._snapshot(stack):
            return snapshot
        if self.log.head.unlogged > 0 and self.log.head.run == self.run:
            with self.files.locked(self.limits.patience) as is_locked:
                if is_locked:
                    return self._advanced(stack)
        raise _BusyError

    def _advanced(self, stack: ExitStack) -> View:
        try:
            view = self._advance(stack)
        except (lmdb.Error, ViewDamagedError) as error:
            if is_disk_error(error):
                raise
            stack.close()
            self.files.discard()
            view = self._advance(stack)
        self.files.clean(self.log.head.token)
        view.tree.begin()
        return view

    def _snapshot(self, stack: ExitStack) -> View | None:
        """Open the current generation as it is, while another process changes it; `None` if it is not at the head."""
        generation = self.files.current()
        if generation is None:
            return None
        try:
            tree = self._open(stack, generation, readonly=True)
            tree.begin()
            meta = tree.meta()
        except (lmdb.Error, ViewDamagedError):
            meta = None
        if meta is None or meta.applying is not None or meta.token != self.log.head.token:
            stack.close()
            return None
        return View(tree, self.files, self.limits, meta.has_unlogged and self.log.head.run == self.run, True, 0.0)

    def private(self, stack: ExitStack) -> View:
        path = self.files.new("private")
        stack.enter_context(self.files.used(path))  # so that the directory is removed if this process dies
        stack.callback(shutil.rmtree, path, ignore_errors=True)
        tree = self._fill(stack, path)
        tree.fill_indexes(None)
        tree.begin()
        return View(tree, self.files, self.limits, False, False, self._seconds(), is_private=True)

    def _advance(self, stack: ExitStack) -> View:
        """Bring the current generation to the head, or make a new one."""
        generation = self.files.current()
        tree = None if generation is None else self._open(stack, generation)
        if tree is not None and self._apply(tree):
            hit = True
        elif tree is not None and self._catch_up(tree):
            hit = False
        else:
            stack.close()
            tree, hit = self._rebuild(stack), self.log.head.token == NO_TOKEN
        if tree.count(Kind.LOGGED) != self.log.head.entries:
            raise ViewDamagedError(f"the number of entries in {tree.path} is wrong")
        rewritten = self._rewrite(stack, tree)
        tree = rewritten or tree
        meta = tree.meta()
        is_filled = tree.fill_indexes(meta.passed)
        if meta.passed is not None:
            tree.set_meta(attrs.evolve(meta, passed=None))
        has_unlogged = meta.has_unlogged and self.log.head.run == self.run
        is_unchanged = hit and rewritten is None and not is_filled
        seconds = 0.0 if is_unchanged or self.log.head.token == NO_TOKEN else self._seconds()
        return View(tree, self.files, self.limits, has_unlogged, hit, seconds)

    def _apply(self, tree: Tree) -> bool:
        """Bring the tree to the head with a pending file, if necessary. Return `True` if it is at the head."""
        meta, head = tree.meta(), self.log.head
        if meta.applying is None and meta.token == head.token:
            return True
        if meta.applying not in (None, head.token):
            return False
        plain = self.files.read_pending(meta.token, head.token)
        if plain is None:
            return False
        pending = Pending.from_plain(plain)
        has_unlogged = meta.has_unlogged or pending.dropped
        changed = meta.changed + sum(len(each.ids) + len(each.deleted) for each in pending.changes.values())
        after = TreeMeta(head.token, head.version, pending.run, has_unlogged, changed, passed=pending.passed)
        tree.apply(after, pending.changes, pending.dropped)
        return True

    def _catch_up(self, tree: Tree) -> bool:
        """Bring the tree to the head with the log's newer segments. Return `False` if it must be rebuilt.

        :raises _BusyError: the tree is ahead of this attempt, since the batch is already committed
        """
        meta, head = tree.meta(), self.log.head
        if meta.version > head.version and meta.run == self.run:
            raise _BusyError
        last = head.after(meta.token)
        if last is None or meta.applying is not None:
            return False
        begun = attrs.evolve(meta, applying=NO_TOKEN)
        tree.apply(begun, {}, True)
        changed = meta.changed
        for number, entries in self.log.newer(last):
            tree.begin()
            changes = difference(entries, tree.versions(Kind.LOGGED, entries))
            tree.end()
            tree.apply(begun, {Kind.LOGGED: table_changes(changes, [(number, entries)])}, False)
            changed += len(entries)
        tree.set_meta(TreeMeta(head.token, head.version, self.run, head.unlogged == 0, changed))
        return True

    def _rebuild(self, stack: ExitStack) -> Tree:
        path = self.files.new()
        tree = self._fill(stack, path)
        self.files.switch(path)
        return tree

    def _fill(self, stack: ExitStack, path: Path) -> Tree:
        """Make a tree from the whole log."""
        head = self.log.head
        tree = self._open(stack, path)
        tree.load(merged(self.log, path / "spill"))
        tree.set_meta(TreeMeta(head.token, head.version, self.run, head.unlogged == 0))
        if tree.count(Kind.LOGGED) != head.entries:
            self.log.fail(f"its segments have {tree.count(Kind.LOGGED):,} of {head.entries:,} entries")
        return tree

    def _rewrite(self, stack: ExitStack, tree: Tree) -> Tree | None:
        """Write the tree densely if it is too large."""
        meta, head = tree.meta(), self.log.head
        least = _MIN_CHANGED * (head.entries + head.unlogged)
        if tree.allocated() <= _max_size(head, self.limits) or meta.changed < least:
            return None
        path = self.files.new()
        try:
            dense = self._open(stack, path)
            tree.copy(dense)
            dense.set_meta(attrs.evolve(meta, changed=0))
            self.files.switch(path)
        except (lmdb.Error, OSError) as error:
            if not is_disk_error(error):
                raise
            shutil.rmtree(path, ignore_errors=True)
            return None  # there is room for the present tree, though not for a second one
        tree.close()  # frees the space of the removed file
        return dense

    def _open(self, stack: ExitStack, path: Path, *, readonly: bool = False) -> Tree:
        if path in _open_trees:
            raise _BusyError
        _open_trees.add(path)
        stack.callback(_open_trees.discard, path)
        stack.enter_context(self.files.used(path))
        size = self.log.head.size + self.log.head.unlogged_size
        return stack.enter_context(closing(Tree(path, size, self.limits, readonly=readonly)))

    def _seconds(self) -> float:
        return time.perf_counter() - self.started


def _max_size(head: Head, limits: Limits) -> int:
    entries, size = head.entries + head.unlogged, head.size + head.unlogged_size
    return limits.free + int(_MAX_FACTOR * (size + _ENTRY * entries))
