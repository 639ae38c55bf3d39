"""Closes the connections of a thread to Spark and to brokers when the thread ends.

PySpark opens a connection when a thread first calls Java, and leaves it to the garbage collector;
clients of brokers are kept by thread, too (`client/shared`).
"""

import threading

from pyspark import SparkContext

from quipu.client.shared import close_shared


def close_thread_connections() -> None:
    """Close this thread's connections, unless it is the main thread."""
    gateway = SparkContext._gateway  # noqa: SLF001 there is no other way to it
    if threading.current_thread() is threading.main_thread():
        return
    close_shared()
    if gateway is None:
        return
    connection = gateway._gateway_client.get_thread_connection()  # noqa: SLF001
    if connection is not None:
        connection.close()
