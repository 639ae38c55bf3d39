"""A program that writes pairs of keys, each pair in one step, until it is killed.

    python writer.py URL KEY    prints a number as soon as that pair is stored
"""

import asyncio
import sys

from quipu.remote.metadata.storage.backend import CreateKey, UpdateKey
from quipu.remote.metadata.storage.connector import UrlConnector


async def main(url: str, key: str) -> None:
    backend = await UrlConnector({"metadata.storage.url": url}).open_backend()
    await backend.create(f"{key}/last", b"-1")
    for number in range(1_000_000):
        await backend.execute([
            CreateKey(f"{key}/a/{number:09d}", bytes(3000)),
            UpdateKey(f"{key}/last", b"%d" % number),
            CreateKey(f"{key}/b/{number:09d}", bytes(3000))])
        print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
