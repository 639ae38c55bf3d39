"""Threads that talk to Spark and to brokers have connections of their own, and close them at their
end.

PySpark opens one when a thread first calls Java, and leaves it to the garbage collector; clients of
brokers are kept by thread, too (`client/shared`).  A thread of ours says when it will call no more.
"""

import threading

from pyspark import SparkContext

from quipu.client.shared import close_shared


def leave() -> None:
    """Close this thread's connections, unless it is the main thread, which goes on calling."""
    gateway = SparkContext._gateway  # noqa: SLF001 there is no other way to it
    if threading.current_thread() is threading.main_thread():
        return
    close_shared()
    if gateway is None:
        return
    connection = gateway._gateway_client.get_thread_connection()  # noqa: SLF001
    if connection is not None:
        connection.close()
