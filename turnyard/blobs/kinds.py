"""What a file is, by its first bytes. What somebody says that it is counts only where the content leaves it open."""

from __future__ import annotations

import codecs

HEAD_BYTES = 4_096
TEXT = "text/plain; charset=utf-8"
UNKNOWN = "application/octet-stream"

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (8, b"AVI ", "video/x-msvideo"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (0, b"BM", "image/bmp"),
    (0, b"\0\0\1\0", "image/x-icon"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypheic", "image/heic"),
    (4, b"ftypM4A", "audio/mp4"),
    (4, b"ftypqt", "video/quicktime"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"PK\3\4", "application/zip"),
    (0, b"PK\5\6", "application/zip"),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"\xfd7zXZ\0", "application/x-xz"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (257, b"ustar", "application/x-tar"),
    (0, b"SQLite format 3\0", "application/vnd.sqlite3"),
    (0, b"PAR1", "application/vnd.apache.parquet"),
    (0, b"\x7fELF", "application/x-executable"),
    (0, b"MZ", "application/vnd.microsoft.portable-executable"),
)
# A browser runs what stands in these, so a text that begins like one is one, whoever says otherwise.
_ACTIVE = ((b"<!doctype html", "text/html"), (b"<html", "text/html"), (b"<script", "text/html"), (b"<svg", "image/svg+xml"))
_MARKUP = (b"<?xml", "application/xml")

_TEXTS = frozenset({"text/csv", "text/markdown", "text/tab-separated-values", "text/calendar", "application/json", "application/x-ndjson"})
_ZIPS = ("application/vnd.openxmlformats-officedocument.", "application/vnd.oasis.opendocument.", "application/epub+zip")


def kind_of(head: bytes, *, said: str | None = None) -> str:
    """Return the media type of a file that begins with `head`, its first `HEAD_BYTES` at most.

    `said` is what its sender calls it: it tells a CSV from any other text and a document from any other archive, no more.
    """
    claim = (said or "").partition(";")[0].strip().lower()
    for at, mark, kind in _MAGIC:
        if head[at : at + len(mark)] == mark:
            return claim if kind == "application/zip" and claim.startswith(_ZIPS) else kind
    if not _is_text(head):
        return UNKNOWN
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()[:64].lower()
    for mark, kind in _ACTIVE:
        if start.startswith(mark):
            return kind
    if start.startswith(_MARKUP[0]):
        return "image/svg+xml" if b"<svg" in head.lower() else _MARKUP[1]
    return claim if claim in _TEXTS else TEXT


def _is_text(head: bytes) -> bool:
    """Tell whether these bytes are UTF-8 without control characters; the last character may be cut off."""
    if any(byte < 0x20 and byte not in b"\t\n\r\f\x1b" for byte in head):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD_BYTES)
    except UnicodeDecodeError:
        return False
    return True
