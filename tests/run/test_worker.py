"""What a worker says of errors that are no bugs of shrink."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import DataError
from shrink.run.worker import as_shrink_error


@pytest.mark.parametrize("compiled", [False, True])
def test_an_index_beyond_a_table_is_an_error_of_the_data(compiled: bool) -> None:
    table = keras.layers.Embedding(5, 2)
    look_up = tf.function(table) if compiled else table
    table.build((None,))
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        look_up(np.array([[0, 7]]))
    error = as_shrink_error(caught.value, "train")
    assert isinstance(error, DataError)
    assert "7 is looked up in a table of 5 rows" in error.message
    assert "0 to 4" in error.message
